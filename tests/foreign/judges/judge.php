<?php
// Judges our broker with php-stomp. What each check shows is told in checks.py.
//
// Usage: php -d stomp.default_read_timeout_sec=10 judge.php PORT VERSION NAMESPACE SILENCE_SECONDS
//
// One line of JSON for each check: {"check": ..., "ok": ..., "detail": ...}.
//
// php-stomp knows nothing of versions: it passes headers on as they are given, as raw octets, and escapes
// nothing. What a version asks for is given here.

[, $port, $version, $namespace] = $argv;

function check(string $name, callable $code): void
{
    global $namespace;
    try {
        $code("/queue/$namespace-$name");
        $result = ['check' => $name, 'ok' => true, 'detail' => ''];
    } catch (Throwable $error) {
        $detail = get_class($error) . ": {$error->getMessage()} at line {$error->getLine()}";
        $result = ['check' => $name, 'ok' => false, 'detail' => $detail];
    }
    echo json_encode($result, JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}

function expect(mixed $actual, mixed $expected): void
{
    if ($actual !== $expected) {
        [$is, $should] = array_map('json_encode', [$actual, $expected]);
        throw new Exception("$is instead of $should, line " . debug_backtrace()[0]['line']);
    }
}

function open_connection(): Stomp
{
    global $port, $version;
    $headers = $version === '1.0' ? [] : ['accept-version' => $version, 'host' => 'localhost'];
    return new Stomp("tcp://127.0.0.1:$port", 'judge', 'none', $headers);
}

// Its methods return only after the RECEIPT that they were told to ask for. That of DISCONNECT, which the
// object sends at its end, cannot be asked for: so each frame that matters asks for its own.
function receipted(array $headers = []): array
{
    static $number = 0;
    return ['receipt' => 'r' . ++$number] + $headers;
}

function take(Stomp $stomp): StompFrame
{
    $frame = $stomp->readFrame();
    if (!$frame) {
        throw new Exception('no MESSAGE came: ' . $stomp->error());
    }
    expect($frame->command, 'MESSAGE');
    return $frame;
}

function take_bodies(Stomp $stomp, int $count): array
{
    return array_map(fn () => take($stomp)->body, range(1, $count));
}

function subscribe(Stomp $stomp, string $queue, string $ack = 'auto'): void
{
    expect($stomp->subscribe($queue, receipted(['id' => '1', 'ack' => $ack])), true);
}

function send_numbered(Stomp $stomp, string $queue, int $count): array
{
    $bodies = array_map(fn ($number) => "m$number", range(0, $count - 1));
    foreach ($bodies as $body) {
        $stomp->send($queue, $body);
    }
    return $bodies;
}

// Beside the message-id, which php-stomp always sends, each version has a header of its own.
function settle(Stomp $stomp, string $verb, StompFrame $message, array $headers = []): void
{
    global $version;
    $headers += match ($version) {
        '1.0' => [],
        '1.1' => ['subscription' => '1'],
        '1.2' => ['id' => $message->headers['ack']],
    };
    expect($stomp->$verb($message, receipted($headers)), true);
}

// What a queue holds: everything before a last message of our own.
function drain(string $queue): array
{
    $left = [];
    $stomp = open_connection();
    $stomp->send($queue, 'end', receipted());
    subscribe($stomp, $queue);
    while (($message = take($stomp))->body !== 'end') {
        $left[] = $message;
    }
    return $left;
}

function bodies(array $messages): array
{
    return array_map(fn ($message) => $message->body, $messages);
}

// Other checks' messages lie in the dead-letter queue, too. They go back when we unsubscribe.
function take_dead_letter(string $queue): StompFrame
{
    $stomp = open_connection();
    subscribe($stomp, '/queue/DLQ', 'client-individual');
    do {
        $message = take($stomp);
    } while ($message->headers['dead-letter-from'] !== $queue);
    settle($stomp, 'ack', $message);
    expect($stomp->unsubscribe('/queue/DLQ', receipted(['id' => '1'])), true);
    return $message;
}

check('connects', function (): void {
    expect(strlen(open_connection()->getSessionId()) > 0, true);
});

check('receipts', function (string $queue): void {
    $stomp = open_connection();
    for ($number = 0; $number < 20; $number++) {
        // It returns true for the right RECEIPT alone.
        expect($stomp->send($queue, 'x', receipted()), true);
    }
});

check('errors', function (string $queue): void {
    $stomp = open_connection();
    $stomp->subscribe($queue, ['id' => '1', 'ack' => 'bogus']);
    try {
        $stomp->readFrame();
    } catch (StompException $error) {
        expect(str_contains($error->getMessage(), 'bogus'), true);
        return;
    }
    throw new Exception('no ERROR came');
});

check('auto', function (string $queue): void {
    $stomp = open_connection();
    subscribe($stomp, $queue);
    $sent = send_numbered($stomp, $queue, 100);
    expect(take_bodies($stomp, 100), $sent);
    unset($stomp);
    expect(drain($queue), []);
});

check('client', function (string $queue): void {
    $stomp = open_connection();
    subscribe($stomp, $queue, 'client');
    send_numbered($stomp, $queue, 3);
    take($stomp);
    $second = take($stomp);
    take($stomp);
    settle($stomp, 'ack', $second);
    unset($stomp);
    expect(bodies(drain($queue)), ['m2']);
});

if ($version !== '1.0') {
    check('client-individual', function (string $queue): void {
        $stomp = open_connection();
        subscribe($stomp, $queue, 'client-individual');
        send_numbered($stomp, $queue, 3);
        take($stomp);
        $second = take($stomp);
        take($stomp);
        settle($stomp, 'ack', $second);
        unset($stomp);
        expect(bodies(drain($queue)), ['m0', 'm2']);
    });

    check('nack', function (string $queue): void {
        $stomp = open_connection();
        subscribe($stomp, $queue, 'client-individual');
        $stomp->send($queue, 'again');
        settle($stomp, 'nack', take($stomp));
        $second = take($stomp);
        expect([$second->body, $second->headers['redelivered']], ['again', 'true']);
        settle($stomp, 'ack', $second);
        unset($stomp);
        expect(drain($queue), []);
    });

    check('dead-letter', function (string $queue): void {
        $stomp = open_connection();
        subscribe($stomp, $queue, 'client-individual');
        $stomp->send($queue, 'rejected');
        settle($stomp, 'nack', take($stomp), ['requeue' => 'false']);
        unset($stomp);
        expect(drain($queue), []);
        $message = take_dead_letter($queue);
        expect([$message->body, $message->headers['dead-letter-reason']], ['rejected', 'rejected']);
    });
}

check('commit', function (string $queue): void {
    $stomp = open_connection();
    subscribe($stomp, $queue);
    expect($stomp->begin('t1'), true);
    $stomp->send($queue, 'first', ['transaction' => 't1']);
    $stomp->send($queue, 'second', ['transaction' => 't1']);
    $stomp->send($queue, 'before');
    expect(take_bodies($stomp, 1), ['before']);
    expect($stomp->commit('t1', receipted()), true);
    expect(take_bodies($stomp, 2), ['first', 'second']);
});

check('abort', function (string $queue): void {
    $stomp = open_connection();
    expect($stomp->begin('t1'), true);
    $stomp->send($queue, 'never', ['transaction' => 't1']);
    expect($stomp->abort('t1', receipted()), true);
    unset($stomp);
    expect(drain($queue), []);
});

check('aborted-ack', function (string $queue): void {
    $stomp = open_connection();
    subscribe($stomp, $queue, 'client');
    $stomp->send($queue, 'kept');
    $message = take($stomp);
    expect($stomp->begin('t1'), true);
    settle($stomp, 'ack', $message, ['transaction' => 't1']);
    expect($stomp->abort('t1', receipted()), true);
    unset($stomp);
    expect(bodies(drain($queue)), ['kept']);
});

foreach (['binary' => 1, 'mebibyte' => 4096] as $name => $times) {
    check($name, function (string $queue) use ($times): void {
        $body = str_repeat(implode(array_map('chr', range(0, 255))), $times);
        open_connection()->send($queue, $body, receipted());
        expect(md5(drain($queue)[0]->body), md5($body));
    });
}

check('headers', function (string $queue): void {
    open_connection()->send($queue, 'x', receipted(['größe' => 'grün ✓']));
    expect(drain($queue)[0]->headers['größe'], 'grün ✓');
});
