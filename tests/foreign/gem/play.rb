# Plays the roles of the gem as a test says: a command a line on stdin, its result a line on stdout.
#
# Usage: ruby play.rb, then {"do": NAME, ...}. A result is {"ok": VALUE} or {"raised": CLASS, "message": TEXT}.

require_relative 'nebulous_stomp'

$stdout.sync = true

CACHE = NebulousStomp::Cache.new
HEARD = Queue.new

# The service that listens here; a message of another verb is answered with an error.
VERBS = {
  'ping' => ->(message) { message.respond_with_success },
  'echo' => ->(message) { message.respond_with_protocol('echoresponse', message.params, 'as it came') },
  'free' => ->(message) { message.respond(NebulousStomp::Message.new(body: message.params)) },
  'fail' => ->(message) { message.respond_with_error('it failed', %w[a b]) },
  'crash' => ->(_) { raise 'the handler crashed' }
}.freeze

def connect_hash(command)
  host = { login: 'guest', passcode: 'guest', host: '127.0.0.1', port: command['port'] }
  headers = command.fetch('connect_headers', {}).transform_keys(&:to_sym)
  { hosts: [host], reliable: false, connect_headers: headers }
end

def symbols(fields)
  fields.transform_keys(&:to_sym)
end

def shown(message)
  { verb: message.verb, params: message.params, desc: message.desc, body: message.body,
    content_type: message.content_type, in_reply_to: message.in_reply_to, reply_to: message.reply_to }
end

def ask(command)
  target = NebulousStomp::Target.new(symbols(command['target']))
  message = NebulousStomp::Message.new(symbols(command['message']))
  handler = NebulousStomp::StompHandler.new(connect_hash(command))
  request = NebulousStomp::Request.new(target, message, handler, CACHE)
  request.clear_cache if command['clear']
  limits = command.key?('timeout') ? [command['timeout']] : []
  shown(command['cached'] ? request.send(*limits) : request.send_no_cache(*limits))
end

def listen(command)
  HEARD.clear
  handler = NebulousStomp::StompHandler.new(connect_hash(command))
  listener = NebulousStomp::Listener.new(command['queue'], handler)
  thread = listener.consume_messages do |message|
    HEARD << shown(message)
    answer = VERBS.fetch(message.verb) { ->(request) { request.respond_with_error("no verb #{message.verb}") } }
    listener.reply(*answer.call(message))
  end
  is_alive?(thread, command.fetch('watch', 0))
end

# Where the stomp gem refuses the SUBSCRIBE the thread ends, and nobody says so.
def is_alive?(thread, seconds)
  thread.join(seconds).nil?
rescue Stomp::Error::SubscriptionRequiredError
  false
end

def reply_ids(command)
  handler = NebulousStomp::StompHandler.new(connect_hash(command)).connect
  Array.new(command['count']) { handler.calc_reply_id }
ensure
  handler&.disconnect
end

def do_it(command)
  case command['do']
  when 'ask' then ask(command)
  when 'listen' then listen(command)
  when 'heard' then HEARD.pop
  when 'reply ids' then reply_ids(command)
  when 'spoil' then CACHE.set(command['key'], '{}', 60)
  end
end

$stdin.each_line do |line|
  result = begin
    { ok: do_it(JSON.parse(line)) }
  rescue StandardError => e
    { raised: e.class.name, message: e.message }
  end
  puts JSON.generate(result)
end
