# A double of the gem NebulousStomp 3.1.0, which Debian does not have: its wire and its ways as PROTOCOL C.4 to
# C.6 tell them. Like the gem it goes through the stomp gem, puts the same octets on the wire but for ids and
# times, reads what the gem reads, and fails where the gem fails. Our own lines, none of the gem's.
#
# It differs where nobody on the wire can tell: an idle listener rests (the gem spins), and the cache is a hash
# of this process (the gem's is in Redis).

require 'json'
require 'stomp'

module NebulousStomp
  NebulousError = Class.new(StandardError)
  ConnectionError = Class.new(NebulousError)
  NebulousTimeout = Class.new(StandardError) # no NebulousError, in the gem neither

  MESSAGE_TIMEOUT = 10
  CACHE_TIMEOUT = 120

  # Posted to a queue before each SUBSCRIBE, so that there is one; whoever reads it skips it (C.4).
  BOO = 'boo'.freeze

  # Names are from the responder's side: requests go to receiveQueue, answers come on sendQueue.
  class Target
    KEYS = %i[name sendQueue receiveQueue messageTimeout].freeze

    attr_reader :name, :send_queue, :receive_queue, :message_timeout

    def initialize(fields)
      unknown = fields.keys - KEYS
      raise ArgumentError, "unknown keys: #{unknown.join(', ')}" unless unknown.empty?

      @name, @send_queue, @receive_queue, @message_timeout = fields.values_at(*KEYS)
    end
  end

  # The rules of C.5, one way.
  module Reading
    module_function

    # `application/json;charset=utf-8` is text: the gem looks at the end only.
    def json?(content_type)
      content_type.to_s.match?(/json$/i)
    end

    # Octets of a socket are Latin-1 to the gem, whatever they are.
    def text(octets)
      return octets.scrub("\uFFFD") if octets.encoding == Encoding::UTF_8

      octets.dup.force_encoding(Encoding::ISO_8859_1).encode(Encoding::UTF_8)
    end

    # The value of a JSON body; what cannot be read is a string.
    def json_body(text)
      JSON.parse(text)
    rescue JSON::ParserError
      text
    end

    # The map of a text body; one line without a colon, or a name again, and all of it is a string.
    def text_body(text)
      fields = {}
      text.split("\n").reject { |line| line.strip.empty? }.each do |line|
        name, colon, value = line.partition(':')
        name = name.strip
        return text if colon.empty? || fields.key?(name)

        fields[name] = value.strip
      end
      fields
    end
  end

  class Message
    attr_accessor :reply_id
    attr_reader :content_type, :reply_to, :in_reply_to, :verb, :params, :desc, :body

    def self.from_stomp(frame)
      new(stompHeaders: frame.headers, stompBody: frame.body)
    end

    def self.from_cache(entry)
      fields = JSON.parse(entry, symbolize_names: true)
      raise ArgumentError, 'empty cache entry' if fields.empty?

      fields[:stompHeaders] = fields[:stompHeaders]&.transform_keys(&:to_s)
      new(fields)
    end

    def initialize(fields)
      @stomp_headers, @stomp_body = fields.values_at(:stompHeaders, :stompBody)
      @content_type, @reply_to, @reply_id, @in_reply_to =
        fields.values_at(:contentType, :replyTo, :replyId, :inReplyTo)
      @verb, @params, @desc, @body = fields.values_at(:verb, :params, :desc, :body)
      if @stomp_headers.nil?
        @content_type ||= 'application/json'
      else
        read_headers
        read_body
      end
    end

    def json?
      Reading.json?(@content_type)
    end

    def headers_for_stomp
      { 'content-type' => @content_type, 'neb-reply-id' => @reply_id, 'neb-reply-to' => @reply_to,
        'neb-in-reply-to' => @in_reply_to }.reject { |_, value| value.nil? || value == '' }
    end

    # Verb beats body. An array or a hash in text is Ruby's own literal, which nobody can read back.
    def body_for_stomp
      return json? ? @body.to_json : @body.to_s if @verb.nil?
      return protocol.to_json if json?

      "#{protocol.map { |name, value| "#{name}: #{value}" }.join("\n")}\n\n"
    end

    # The key of the cache. The target is no part of it (C.6).
    def protocol_json
      protocol.to_json
    end

    def to_cache
      { stompHeaders: @stomp_headers, replyTo: @reply_to, replyId: @reply_id, inReplyTo: @in_reply_to,
        contentType: @content_type, stompBody: @stomp_body, body: @stomp_body ? nil : @body,
        verb: @verb, params: @params, desc: @desc }.to_json
    end

    def to(queue)
      Message.new(contentType: @content_type, replyTo: queue, replyId: @reply_id, inReplyTo: @in_reply_to,
                  verb: @verb, params: @params, desc: @desc, body: @body)
    end

    # --- answers: the queue and the message ---

    def respond_with_success
      respond_with_protocol('success')
    end

    def respond_with_error(error, fields = [])
      respond_with_protocol('error', fields, error.to_s)
    end

    def respond_with_protocol(verb, params = [], desc = '')
      respond(Message.new(verb: verb, params: params, desc: desc))
    end

    # The type of the request, whatever type the answer was to have (C.5).
    def respond(answer)
      raise NebulousError, 'there is no queue to answer on' if @reply_to.nil?
      raise ArgumentError, 'there is no reply id' if @reply_id.nil?

      [@reply_to, Message.new(contentType: @content_type, inReplyTo: @reply_id, verb: answer.verb,
                              params: answer.params, desc: answer.desc, body: answer.body)]
    end

    private

    def protocol
      { verb: @verb, parameters: @params, description: @desc }.compact
    end

    def read_headers
      @content_type ||= %w[content-type content_type contentType].filter_map { |name| @stomp_headers[name] }.first
      @reply_id ||= @stomp_headers['neb-reply-id']
      @reply_to ||= @stomp_headers['neb-reply-to']
      @in_reply_to ||= @stomp_headers['neb-in-reply-to']
    end

    def read_body
      text = Reading.text(@stomp_body || '')
      value = json? ? Reading.json_body(text) : Reading.text_body(text)
      if value.is_a?(Hash) && value['verb']
        @verb = value['verb']
        @params = value['parameters'] || value['params']
        @desc = value['description'] || value['desc']
      else
        @body = value || nil # `false` is no body
      end
    end
  end

  # One connection by the stomp gem.
  class StompHandler
    POLL_SECONDS = 0.2
    REST_SECONDS = 0.01

    def initialize(connect_hash)
      @connect_hash = connect_hash
      @connection = nil
    end

    def connect
      @connection = Stomp::Connection.new(@connect_hash)
      frame = @connection.connection_frame
      raise ConnectionError, "Connect Error: #{frame.body}" if frame.command == Stomp::CMD_ERROR

      self
    rescue SystemCallError, Stomp::Error::ProtocolError11p => e
      raise ConnectionError, e.message
    end

    def connected?
      !@connection.nil? && @connection.open?
    end

    def disconnect
      @connection.disconnect if connected?
      @connection = nil
    end

    # The text of the session grows, so that a second id of a connection is S_t1_t2; where the broker named
    # no session this fails.
    def calc_reply_id
      (@connection.connection_frame.headers['session'] << '_' << Time.now.to_f.to_s).dup
    end

    def send_message(queue, message)
      @connection.publish(queue, message.body_for_stomp, message.headers_for_stomp)
    end

    # Yields messages until the block is content with one, which alone is acked.
    def listen_with_timeout(queue, timeout)
      ends = timeout && (now + timeout)
      id = subscribe_with_id(queue)
      found = false
      found = poll(id) { |message| yield message } until found || (ends && now > ends)
      @connection.unsubscribe(queue, id)
      raise NebulousTimeout unless found
    end

    # The thread that yields each message, acked before that. Since STOMP 1.1 it dies without a word: the stomp
    # gem refuses a SUBSCRIBE without id.
    def listen(queue)
      thread = Thread.new do
        @connection.publish(queue, BOO)
        @connection.subscribe(queue, { ack: 'client-individual' })
        loop { poll_and_ack { |message| yield message } }
      end
      thread.report_on_exception = false
      thread
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def subscribe_with_id(queue)
      id = @connection.protocol == Stomp::SPL_10 ? {} : { id: rand(10_000) }
      @connection.publish(queue, BOO)
      @connection.subscribe(queue, { ack: 'client-individual' }.merge(id))
      id
    end

    def poll(id)
      frame = @connection.poll
      if frame.nil?
        sleep POLL_SECONDS
        return false
      end
      return false unless frame.command == Stomp::CMD_MESSAGE # an ERROR would only be logged

      is_found = frame.body != BOO && yield(Message.from_stomp(frame))
      ack(frame, id) if is_found || frame.body == BOO
      is_found
    end

    def poll_and_ack
      frame = @connection.poll
      return sleep(REST_SECONDS) if frame.nil? || frame.command != Stomp::CMD_MESSAGE

      ack(frame, {})
      yield Message.from_stomp(frame) unless frame.body == BOO
    rescue StandardError => e
      warn "error in a listener: #{e.class}: #{e.message}" # the gem logs it and goes on
    end

    def ack(frame, id)
      case @connection.protocol
      when Stomp::SPL_12 then @connection.ack(frame.headers['ack'])
      when Stomp::SPL_11 then @connection.ack(frame.headers['message-id'], { subscription: id[:id] })
      else @connection.ack(frame.headers['message-id'])
      end
    end
  end

  # What Redis does for the gem.
  class Cache
    def initialize
      @entries = {}
    end

    def get(key)
      entry, ends = @entries[key]
      entry if ends && Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
    end

    def set(key, entry, seconds)
      @entries[key] = [entry, Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds]
    end

    def delete(key)
      @entries.delete(key)
    end
  end

  # A question and its answer.
  class Request
    def initialize(target, message, handler, cache = Cache.new)
      raise ArgumentError, 'the message has no verb' if message.verb.nil?

      @target = target
      @message = message.reply_to ? message : message.to(target.send_queue)
      @handler = handler
      @cache = cache
    end

    def send_no_cache(timeout = message_timeout)
      @handler.connect unless @handler.connected?
      @message.reply_id ||= @handler.calc_reply_id
      @handler.send_message(@target.receive_queue, @message)
      answer = nil
      @handler.listen_with_timeout(@target.send_queue, timeout) do |message|
        # Without an id of its own it takes the first one that comes.
        is_ours = @message.reply_id.nil? || message.in_reply_to == @message.reply_id
        answer = message if is_ours
        is_ours
      end
      answer
    ensure
      @handler.disconnect
    end

    # Errors are kept like any other answer, a timeout is not.
    def send(timeout = message_timeout, cache_timeout = CACHE_TIMEOUT)
      entry = @cache.get(@message.protocol_json)
      return Message.from_cache(entry) if entry

      answer = send_no_cache(timeout)
      @cache.set(@message.protocol_json, answer.to_cache, cache_timeout)
      answer
    end

    def clear_cache
      @cache.delete(@message.protocol_json)
      self
    end

    private

    def message_timeout
      @target.message_timeout || MESSAGE_TIMEOUT
    end
  end

  # Serves a queue on a thread, at most once.
  class Listener
    def initialize(queue, handler)
      @queue = queue.respond_to?(:receive_queue) ? queue.receive_queue : queue
      @handler = handler
    end

    def consume_messages(&block)
      @handler.connect unless @handler.connected?
      @handler.listen(@queue, &block)
    end

    def reply(queue, message)
      @handler.send_message(queue, message)
    end
  end
end
