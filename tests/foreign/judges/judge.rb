# Judges our broker with Ruby's stomp gem. What each check shows is told in checks.py.
#
# Usage: ruby judge.rb PORT VERSION NAMESPACE SILENCE_SECONDS
#
# One line of JSON for each check: {"check": ..., "ok": ..., "detail": ...}.

require 'json'
require 'stomp'
require 'timeout'

PORT = Integer(ARGV[0])
VERSION = ARGV[1]
NAMESPACE = ARGV[2]
SILENCE = Float(ARGV[3])
DEADLINE = 10
EVERY_OCTET = (0..255).map(&:chr).join.b

$stdout.sync = true

def check(name)
  begin
    yield "/queue/#{NAMESPACE}-#{name}"
    result = { check: name, ok: true, detail: '' }
  rescue StandardError => e
    result = { check: name, ok: false, detail: "#{e.class}: #{e.message} at #{e.backtrace.first}" }
  end
  puts JSON.generate(result)
end

def expect(actual, expected)
  raise "#{actual.inspect} instead of #{expected.inspect}" unless actual == expected
end

def open_connection(heart_beat = nil)
  headers = {}
  headers = { 'accept-version': VERSION, host: 'localhost' } if VERSION != '1.0'
  headers[:'heart-beat'] = heart_beat if heart_beat
  hosts = [{ login: 'judge', passcode: 'none', host: '127.0.0.1', port: PORT }]
  Stomp::Connection.new(hosts: hosts, reliable: false, connect_headers: headers)
end

def session
  connection = open_connection
  result = yield connection
  connection.disconnect(receipt: 'bye')
  expect(connection.disconnect_receipt.headers['receipt-id'], 'bye')
  result
end

def receive(connection, command)
  frame = Timeout.timeout(DEADLINE) { connection.receive }
  raise 'the broker closed the connection' if frame.nil?

  expect(frame.command, command)
  frame
end

def take(connection, count)
  Array.new(count) { receive(connection, 'MESSAGE') }
end

def subscribe(connection, queue, ack = 'auto')
  connection.subscribe(queue, { id: '1', ack: ack })
end

def send_numbers(connection, queue, count)
  count.times { |number| connection.publish(queue, number.to_s) }
end

# The gem takes another header of the MESSAGE in each version.
def settle(connection, verb, message, headers = {})
  id = message.headers[VERSION == '1.2' ? 'ack' : 'message-id']
  connection.public_send(verb, id, { subscription: '1' }.merge(headers))
end

# What a queue holds: everything before a last message of our own.
def drain(queue)
  left = []
  session do |connection|
    connection.publish(queue, 'end')
    subscribe(connection, queue)
    loop do
      message = receive(connection, 'MESSAGE')
      break if message.body == 'end'

      left << message
    end
  end
  left
end

# Other checks' messages lie in the dead-letter queue, too. They go back when we unsubscribe.
def take_dead_letter(queue)
  session do |connection|
    subscribe(connection, '/queue/DLQ', 'client-individual')
    message = receive(connection, 'MESSAGE')
    message = receive(connection, 'MESSAGE') while message.headers['dead-letter-from'] != queue
    settle(connection, :ack, message)
    connection.unsubscribe('/queue/DLQ', { id: '1', receipt: 'left' })
    frame = connection.receive until frame && frame.command == 'RECEIPT'
    message
  end
end

def bodies(messages)
  messages.map(&:body)
end

# It is silent while the other checks run.
silent = open_connection('1000,1000') if VERSION != '1.0'
silent_since = Process.clock_gettime(Process::CLOCK_MONOTONIC)

check('connects') do
  session do |connection|
    headers = connection.connection_frame.headers
    expect(headers['session'].empty?, false)
    expect(headers['version'], VERSION == '1.0' ? nil : VERSION)
  end
end

check('receipts') do |queue|
  session do |connection|
    names = Array.new(20) { |number| "r#{number}" }
    names.each { |name| connection.publish(queue, '', { receipt: name }) }
    expect(names.map { receive(connection, 'RECEIPT').headers['receipt-id'] }, names)
  end
end

check('errors') do |queue|
  connection = open_connection
  connection.subscribe(queue, { id: '1', ack: 'bogus', receipt: 'r1' })
  error = receive(connection, 'ERROR')
  expect(error.headers['message'].include?('bogus'), true)
  expect(error.headers['receipt-id'], 'r1')
  expect(Timeout.timeout(DEADLINE) { connection.receive }, nil)
end

check('auto') do |queue|
  session do |connection|
    subscribe(connection, queue)
    send_numbers(connection, queue, 100)
    expect(bodies(take(connection, 100)), (0...100).map(&:to_s))
  end
  expect(drain(queue), [])
end

check('client') do |queue|
  session do |connection|
    subscribe(connection, queue, 'client')
    send_numbers(connection, queue, 3)
    settle(connection, :ack, take(connection, 3)[1])
  end
  expect(bodies(drain(queue)), ['2'])
end

if VERSION != '1.0'
  check('client-individual') do |queue|
    session do |connection|
      subscribe(connection, queue, 'client-individual')
      send_numbers(connection, queue, 3)
      settle(connection, :ack, take(connection, 3)[1])
    end
    expect(bodies(drain(queue)), %w[0 2])
  end

  check('nack') do |queue|
    session do |connection|
      subscribe(connection, queue, 'client-individual')
      connection.publish(queue, 'again')
      settle(connection, :nack, take(connection, 1)[0])
      second = take(connection, 1)[0]
      expect([second.body, second.headers['redelivered']], %w[again true])
      settle(connection, :ack, second)
    end
    expect(drain(queue), [])
  end

  check('dead-letter') do |queue|
    session do |connection|
      subscribe(connection, queue, 'client-individual')
      connection.publish(queue, 'rejected')
      settle(connection, :nack, take(connection, 1)[0], { requeue: 'false' })
    end
    expect(drain(queue), [])
    message = take_dead_letter(queue)
    expect([message.body, message.headers['dead-letter-reason']], %w[rejected rejected])
  end
end

check('commit') do |queue|
  session do |connection|
    subscribe(connection, queue)
    connection.begin('t1')
    connection.publish(queue, 'first', { transaction: 't1' })
    connection.publish(queue, 'second', { transaction: 't1' })
    connection.publish(queue, 'before')
    expect(bodies(take(connection, 1)), ['before'])
    connection.commit('t1')
    expect(bodies(take(connection, 2)), %w[first second])
  end
end

check('abort') do |queue|
  session do |connection|
    connection.begin('t1')
    connection.publish(queue, 'never', { transaction: 't1' })
    connection.abort('t1')
  end
  expect(drain(queue), [])
end

check('aborted-ack') do |queue|
  session do |connection|
    subscribe(connection, queue, 'client')
    connection.publish(queue, 'kept')
    message = take(connection, 1)[0]
    connection.begin('t1')
    settle(connection, :ack, message, { transaction: 't1' })
    connection.abort('t1')
  end
  expect(bodies(drain(queue)), ['kept'])
end

check('binary') do |queue|
  session { |connection| connection.publish(queue, EVERY_OCTET) }
  expect(drain(queue)[0].body.b, EVERY_OCTET)
end

check('mebibyte') do |queue|
  session { |connection| connection.publish(queue, EVERY_OCTET * 4096) }
  raise 'the body changed on its way' unless drain(queue)[0].body.b == EVERY_OCTET * 4096
end

check('headers') do |queue|
  # In 1.0 the gem gives raw octets back, under names that are no text, and nothing is escaped.
  name, text = VERSION == '1.0' ? ['text', 'grün: ✓'] : ['größe', "grün: a\\ b\n✓"]
  session { |connection| connection.publish(queue, 'x', { name => text }) }
  expect(drain(queue)[0].headers[name].b, text.b)
end

if silent
  check('heart-beats') do |queue|
    sleep([silent_since + SILENCE - Process.clock_gettime(Process::CLOCK_MONOTONIC), 0].max)
    expect([silent.hb_sent, silent.hb_received], [true, true])
    expect([silent.hbsend_count, silent.hbrecv_count].min >= 2, true)
    silent.publish(queue, 'alive', { receipt: 'r1' })
    expect(receive(silent, 'RECEIPT').headers['receipt-id'], 'r1')
    silent.disconnect
  end
end
