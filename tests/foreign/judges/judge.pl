# Judges our broker with Perl's Net::Stomp. What each check shows is told in checks.py.
#
# Usage: perl judge.pl PORT VERSION NAMESPACE SILENCE_SECONDS
#
# One line of JSON for each check: {"check": ..., "ok": ..., "detail": ...}.
#
# Net::Stomp knows nothing of versions: it passes headers on as they are given, as raw octets, and escapes
# nothing. What a version asks for is given here.

use strict;
use warnings;
use JSON::PP;
use Net::Stomp;
use Time::HiRes qw(time);

my ($port, $version, $namespace, $silence) = @ARGV;
my $deadline = 10;
my $every_octet = join '', map { chr } 0 .. 255;
my $json = JSON::PP->new->canonical->latin1;

$| = 1;

sub check {
    my ($name, $code) = @_;
    my $ok = eval { $code->("/queue/$namespace-$name"); 1 };
    my $result = { check => $name, ok => $ok ? JSON::PP::true : JSON::PP::false, detail => $ok ? '' : "$@" };
    print $json->encode($result), "\n";
}

sub expect {
    my ($actual, $expected) = @_;
    my ($is, $should) = map { $json->allow_nonref->encode($_) } $actual, $expected;
    die "$is instead of $should" unless $is eq $should;
}

sub open_connection {
    my ($heart_beat) = @_;
    my %headers = (login => 'judge', passcode => 'none');
    %headers = (%headers, 'accept-version' => $version, host => 'localhost') if $version ne '1.0';
    $headers{'heart-beat'} = $heart_beat if $heart_beat;
    my $stomp = Net::Stomp->new({ hostname => '127.0.0.1', port => $port, reconnect_attempts => 1 });
    my $connected = $stomp->connect(\%headers);
    expect($connected->command, 'CONNECTED');
    return ($stomp, $connected->headers);
}

sub session {
    my ($code) = @_;
    my ($stomp, $headers) = open_connection();
    my $result = $code->($stomp, $headers);
    # disconnect() would not wait for what the broker has to say.
    my $leaving = Net::Stomp::Frame->new({ command => 'DISCONNECT', headers => { receipt => 'bye' } });
    $stomp->send_frame($leaving);
    expect(receive($stomp, 'RECEIPT')->headers->{'receipt-id'}, 'bye');
    $stomp->socket->close;
    return $result;
}

sub receive {
    my ($stomp, $command) = @_;
    my $frame = $stomp->receive_frame({ timeout => $deadline });
    die "no $command came" unless $frame;
    expect($frame->command, $command);
    return $frame;
}

sub take {
    my ($stomp, $count) = @_;
    return map { receive($stomp, 'MESSAGE') } 1 .. $count;
}

sub subscribe {
    my ($stomp, $queue, $ack) = @_;
    $stomp->subscribe({ destination => $queue, id => '1', ack => $ack // 'auto' });
}

sub send_numbered {
    my ($stomp, $queue, $count) = @_;
    $stomp->send({ destination => $queue, body => "m$_" }) for 0 .. $count - 1;
}

# Beside the message-id, which Net::Stomp always sends, each version has a header of its own.
sub settle {
    my ($stomp, $verb, $message, %headers) = @_;
    $headers{subscription} = '1' if $version eq '1.1';
    $headers{id} = $message->headers->{ack} if $version eq '1.2';
    $stomp->$verb({ frame => $message, %headers });
}

sub send_control {
    my ($stomp, $command, $transaction) = @_;
    my $frame = Net::Stomp::Frame->new({ command => $command, headers => { transaction => $transaction } });
    $stomp->send_frame($frame);
}

# What a queue holds: everything before a last message of our own.
sub drain {
    my ($queue) = @_;
    return session(sub {
        my ($stomp) = @_;
        my @left;
        $stomp->send({ destination => $queue, body => 'end' });
        subscribe($stomp, $queue);
        while ((my $message = receive($stomp, 'MESSAGE'))->body ne 'end') {
            push @left, $message;
        }
        return \@left;
    });
}

# Other checks' messages lie in the dead-letter queue, too. They go back when we unsubscribe.
sub take_dead_letter {
    my ($queue) = @_;
    return session(sub {
        my ($stomp) = @_;
        subscribe($stomp, '/queue/DLQ', 'client-individual');
        my $message = receive($stomp, 'MESSAGE');
        $message = receive($stomp, 'MESSAGE') while $message->headers->{'dead-letter-from'} ne $queue;
        settle($stomp, 'ack', $message);
        $stomp->unsubscribe({ destination => '/queue/DLQ', id => '1', receipt => 'left' });
        1 while $stomp->receive_frame({ timeout => $deadline })->command ne 'RECEIPT';
        return $message;
    });
}

sub bodies { return [map { $_->body } @_] }

# Net::Stomp leaves beating to its user, and takes the broker's line ends for what they are.
sub stay_silent {
    my ($stomp) = @_;
    my ($beats, $end) = (0, time + $silence);
    while (time < $end) {
        if ($stomp->select->can_read(0.5)) {
            $beats++;
            expect($stomp->receive_frame({ timeout => 0 }), undef);
        }
        $stomp->socket->syswrite("\n");
    }
    return $beats;
}

check('connects', sub {
    session(sub {
        my ($stomp, $headers) = @_;
        die 'no session' unless $stomp->session_id;
        expect($headers->{version}, $version eq '1.0' ? undef : $version);
    });
});

check('receipts', sub {
    my ($queue) = @_;
    session(sub {
        my ($stomp) = @_;
        for (1 .. 20) {
            # It returns true for the right RECEIPT alone.
            die 'no receipt' unless $stomp->send_with_receipt({ destination => $queue, body => 'x' });
        }
    });
});

check('errors', sub {
    my ($queue) = @_;
    my ($stomp) = open_connection();
    $stomp->subscribe({ destination => $queue, id => '1', ack => 'bogus', receipt => 'r1' });
    my $error = receive($stomp, 'ERROR');
    die $error->headers->{message} unless $error->headers->{message} =~ /bogus/;
    expect($error->headers->{'receipt-id'}, 'r1');
    expect($stomp->receive_frame({ timeout => $deadline }), undef);
    die 'the connection is open' if $stomp->socket->connected;
});

check('auto', sub {
    my ($queue) = @_;
    session(sub {
        my ($stomp) = @_;
        subscribe($stomp, $queue);
        send_numbered($stomp, $queue, 100);
        expect(bodies(take($stomp, 100)), [map { "m$_" } 0 .. 99]);
    });
    expect(drain($queue), []);
});

check('client', sub {
    my ($queue) = @_;
    session(sub {
        my ($stomp) = @_;
        subscribe($stomp, $queue, 'client');
        send_numbered($stomp, $queue, 3);
        settle($stomp, 'ack', (take($stomp, 3))[1]);
    });
    expect(bodies(@{ drain($queue) }), ['m2']);
});

if ($version ne '1.0') {
    check('client-individual', sub {
        my ($queue) = @_;
        session(sub {
            my ($stomp) = @_;
            subscribe($stomp, $queue, 'client-individual');
            send_numbered($stomp, $queue, 3);
            settle($stomp, 'ack', (take($stomp, 3))[1]);
        });
        expect(bodies(@{ drain($queue) }), ['m0', 'm2']);
    });

    check('nack', sub {
        my ($queue) = @_;
        session(sub {
            my ($stomp) = @_;
            subscribe($stomp, $queue, 'client-individual');
            $stomp->send({ destination => $queue, body => 'again' });
            settle($stomp, 'nack', take($stomp, 1));
            my ($second) = take($stomp, 1);
            expect([$second->body, $second->headers->{redelivered}], ['again', 'true']);
            settle($stomp, 'ack', $second);
        });
        expect(drain($queue), []);
    });

    check('dead-letter', sub {
        my ($queue) = @_;
        session(sub {
            my ($stomp) = @_;
            subscribe($stomp, $queue, 'client-individual');
            $stomp->send({ destination => $queue, body => 'rejected' });
            settle($stomp, 'nack', take($stomp, 1), requeue => 'false');
        });
        expect(drain($queue), []);
        my $message = take_dead_letter($queue);
        expect([$message->body, $message->headers->{'dead-letter-reason'}], ['rejected', 'rejected']);
    });
}

check('commit', sub {
    my ($queue) = @_;
    session(sub {
        my ($stomp) = @_;
        # It sends BEGIN, SEND with a receipt, and COMMIT.
        die 'not committed' unless $stomp->send_transactional({ destination => $queue, body => 'alone' });
        send_control($stomp, 'BEGIN', 't1');
        $stomp->send({ destination => $queue, body => $_, transaction => 't1' }) for 'first', 'second';
        $stomp->send({ destination => $queue, body => 'before' });
        send_control($stomp, 'COMMIT', 't1');
    });
    expect(bodies(@{ drain($queue) }), ['alone', 'before', 'first', 'second']);
});

check('abort', sub {
    my ($queue) = @_;
    session(sub {
        my ($stomp) = @_;
        send_control($stomp, 'BEGIN', 't1');
        $stomp->send({ destination => $queue, body => 'never', transaction => 't1' });
        send_control($stomp, 'ABORT', 't1');
    });
    expect(drain($queue), []);
});

check('aborted-ack', sub {
    my ($queue) = @_;
    session(sub {
        my ($stomp) = @_;
        subscribe($stomp, $queue, 'client');
        $stomp->send({ destination => $queue, body => 'kept' });
        my ($message) = take($stomp, 1);
        send_control($stomp, 'BEGIN', 't1');
        settle($stomp, 'ack', $message, transaction => 't1');
        send_control($stomp, 'ABORT', 't1');
    });
    expect(bodies(@{ drain($queue) }), ['kept']);
});

for (['binary', 1], ['mebibyte', 4096]) {
    my ($name, $times) = @$_;
    check($name, sub {
        my ($queue) = @_;
        my $body = $every_octet x $times;
        session(sub { $_[0]->send({ destination => $queue, body => $body, bytes_message => 1 }) });
        die 'the body changed on its way' unless drain($queue)->[0]->body eq $body;
    });
}

check('headers', sub {
    my ($queue) = @_;
    session(sub { $_[0]->send({ destination => $queue, body => 'x', 'größe' => 'grün ✓' }) });
    expect(drain($queue)->[0]->headers->{'größe'}, 'grün ✓');
});

if ($version ne '1.0') {
    check('heart-beats', sub {
        my ($queue) = @_;
        my ($stomp) = open_connection('1000,1000');
        my $beats = stay_silent($stomp);
        die "$beats beats came" unless $beats >= 2;
        die 'no receipt' unless $stomp->send_with_receipt({ destination => $queue, body => 'alive' });
        $stomp->disconnect;
    });
}
