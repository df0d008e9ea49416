// Judges our broker with ActiveMQ's StompConnection. What each check shows is told in checks.py.
//
// Usage: java -cp /usr/share/java/activemq-stomp.jar:... Judge.java PORT VERSION NAMESPACE SILENCE_SECONDS
//
// One line of JSON for each check: {"check": ..., "ok": ..., "detail": ...}.
//
// StompConnection writes headers as they are given and its own ACK by `message-id` alone, as 1.0 has it, and
// knows no NACK: what it lacks goes out as a StompFrame, by its sendFrame.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.activemq.transport.stomp.StompConnection;
import org.apache.activemq.transport.stomp.StompFrame;

public class Judge {
    interface Check { void run(String queue) throws Exception; }

    interface Work { void run(StompConnection connection) throws Exception; }

    static int port;
    static String version;
    static String namespace;
    static double silence;

    public static void main(String[] arguments) {
        port = Integer.parseInt(arguments[0]);
        version = arguments[1];
        namespace = arguments[2];
        silence = Double.parseDouble(arguments[3]);

        check("connects", Judge::connects);
        check("receipts", Judge::receipts);
        check("errors", Judge::errors);
        check("auto", Judge::auto);
        check("client", Judge::client);
        if (!version.equals("1.0")) {
            check("client-individual", Judge::clientIndividual);
            check("nack", Judge::nack);
            check("dead-letter", Judge::deadLetter);
        }
        check("commit", Judge::commit);
        check("abort", Judge::abort);
        check("aborted-ack", Judge::abortedAck);
        check("binary", queue -> body(queue, 1));
        check("mebibyte", queue -> body(queue, 4096));
        check("headers", Judge::headers);
        if (!version.equals("1.0")) {
            check("heart-beats", Judge::heartBeats);
        }
    }

    static void check(String name, Check check) {
        String detail = "";
        try {
            check.run("/queue/" + namespace + "-" + name);
        } catch (Exception error) {
            detail = error + " at " + error.getStackTrace()[0];
        }
        String text = detail.replaceAll("[\\p{Cntrl}]", " ").replace("\\", "\\\\").replace("\"", "\\\"");
        System.out.println(
            "{\"check\": \"" + name + "\", \"ok\": " + detail.isEmpty() + ", \"detail\": \"" + text + "\"}");
    }

    static void expect(Object actual, Object expected) {
        if (!expected.equals(actual)) {
            throw new IllegalStateException(actual + " instead of " + expected);
        }
    }

    static HashMap<String, String> map(String... pairs) {
        HashMap<String, String> headers = new HashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            headers.put(pairs[i], pairs[i + 1]);
        }
        return headers;
    }

    static StompConnection open(String heartBeat) throws Exception {
        StompConnection connection = new StompConnection();
        connection.setVersion(version);
        connection.open("127.0.0.1", port);
        HashMap<String, String> headers = map("login", "judge", "passcode", "none");
        if (!version.equals("1.0")) {
            headers.putAll(map("accept-version", version, "host", "localhost"));
        }
        if (heartBeat != null) {
            headers.put("heart-beat", heartBeat);
        }
        connection.connect(headers);
        return connection;
    }

    static void session(Work work) throws Exception {
        StompConnection connection = open(null);
        work.run(connection);
        connection.disconnect("bye");
        expect(receive(connection, "RECEIPT").getHeaders().get("receipt-id"), "bye");
        connection.close();
    }

    static StompFrame receive(StompConnection connection, String action) throws Exception {
        StompFrame frame = connection.receive();
        expect(frame.getAction(), action);
        return frame;
    }

    static List<StompFrame> take(StompConnection connection, int count) throws Exception {
        List<StompFrame> messages = new ArrayList<>();
        while (messages.size() < count) {
            messages.add(receive(connection, "MESSAGE"));
        }
        return messages;
    }

    static List<String> bodies(List<StompFrame> messages) {
        return messages.stream().map(StompFrame::getBody).collect(Collectors.toList());
    }

    static void subscribe(StompConnection connection, String queue, String ack) throws Exception {
        connection.subscribe(queue, ack, map("id", "1"));
    }

    static List<String> sendNumbers(StompConnection connection, String queue, int count) throws Exception {
        List<String> sent = IntStream.range(0, count).mapToObj(String::valueOf).collect(Collectors.toList());
        for (String body : sent) {
            connection.send(queue, body);
        }
        return sent;
    }

    static void settle(StompConnection connection, String action, StompFrame message, String... headers)
            throws Exception {
        Map<String, String> received = message.getHeaders();
        Map<String, String> settled = map(headers);
        if (version.equals("1.2")) {
            settled.put("id", received.get("ack"));
        } else {
            settled.putAll(map("message-id", received.get("message-id"), "subscription", "1"));
        }
        connection.sendFrame(new StompFrame(action, settled).format());
    }

    // What a queue holds: everything before a last message of our own.
    static List<StompFrame> drain(String queue) throws Exception {
        List<StompFrame> left = new ArrayList<>();
        session(connection -> {
            connection.send(queue, "end");
            subscribe(connection, queue, "auto");
            StompFrame message = receive(connection, "MESSAGE");
            while (!message.getBody().equals("end")) {
                left.add(message);
                message = receive(connection, "MESSAGE");
            }
        });
        return left;
    }

    // Other checks' messages lie in the dead-letter queue, too. They go back when we unsubscribe.
    static StompFrame takeDeadLetter(String queue) throws Exception {
        StompFrame[] found = new StompFrame[1];
        session(connection -> {
            subscribe(connection, "/queue/DLQ", "client-individual");
            do {
                found[0] = receive(connection, "MESSAGE");
            } while (!queue.equals(found[0].getHeaders().get("dead-letter-from")));
            settle(connection, "ACK", found[0]);
            connection.unsubscribe("/queue/DLQ", map("id", "1", "receipt", "left"));
            while (!connection.receive().getAction().equals("RECEIPT")) {
            }
        });
        return found[0];
    }

    static void connects(String queue) throws Exception {
        StompConnection connection = new StompConnection();
        connection.open("127.0.0.1", port);
        // Its connect() takes CONNECTED for itself.
        boolean isOld = version.equals("1.0");
        Map<String, String> headers = isOld ? map() : map("accept-version", version, "host", "localhost");
        connection.sendFrame(new StompFrame("CONNECT", headers).format());
        Map<String, String> connected = receive(connection, "CONNECTED").getHeaders();
        expect(connected.get("session").isEmpty(), false);
        expect(String.valueOf(connected.get("version")), isOld ? "null" : version);
        connection.close();
    }

    static void receipts(String queue) throws Exception {
        session(connection -> {
            for (int i = 0; i < 20; i++) {
                connection.send(queue, "x", null, map("receipt", "r" + i));
            }
            for (int i = 0; i < 20; i++) {
                expect(receive(connection, "RECEIPT").getHeaders().get("receipt-id"), "r" + i);
            }
        });
    }

    static void errors(String queue) throws Exception {
        StompConnection connection = open(null);
        connection.subscribe(queue, "bogus", map("id", "1", "receipt", "r1"));
        Map<String, String> error = receive(connection, "ERROR").getHeaders();
        expect(error.get("message").contains("bogus"), true);
        expect(error.get("receipt-id"), "r1");
        int next = connection.getStompSocket().getInputStream().read();
        // A line end may follow the frame.
        expect(next == '\n' ? connection.getStompSocket().getInputStream().read() : next, -1);
        connection.close();
    }

    static void auto(String queue) throws Exception {
        session(connection -> {
            subscribe(connection, queue, "auto");
            List<String> sent = sendNumbers(connection, queue, 100);
            expect(bodies(take(connection, 100)), sent);
        });
        expect(drain(queue), List.of());
    }

    static void client(String queue) throws Exception {
        session(connection -> {
            subscribe(connection, queue, "client");
            sendNumbers(connection, queue, 3);
            StompFrame second = take(connection, 3).get(1);
            if (version.equals("1.0")) {
                connection.ack(second);
            } else {
                settle(connection, "ACK", second);
            }
        });
        expect(bodies(drain(queue)), List.of("2"));
    }

    static void clientIndividual(String queue) throws Exception {
        session(connection -> {
            subscribe(connection, queue, "client-individual");
            sendNumbers(connection, queue, 3);
            settle(connection, "ACK", take(connection, 3).get(1));
        });
        expect(bodies(drain(queue)), List.of("0", "2"));
    }

    static void nack(String queue) throws Exception {
        session(connection -> {
            subscribe(connection, queue, "client-individual");
            connection.send(queue, "again");
            settle(connection, "NACK", receive(connection, "MESSAGE"));
            StompFrame second = receive(connection, "MESSAGE");
            expect(second.getBody(), "again");
            expect(second.getHeaders().get("redelivered"), "true");
            settle(connection, "ACK", second);
        });
        expect(drain(queue), List.of());
    }

    static void deadLetter(String queue) throws Exception {
        session(connection -> {
            subscribe(connection, queue, "client-individual");
            connection.send(queue, "rejected");
            settle(connection, "NACK", receive(connection, "MESSAGE"), "requeue", "false");
        });
        expect(drain(queue), List.of());
        StompFrame message = takeDeadLetter(queue);
        expect(message.getBody(), "rejected");
        expect(message.getHeaders().get("dead-letter-reason"), "rejected");
    }

    static void commit(String queue) throws Exception {
        session(connection -> {
            subscribe(connection, queue, "auto");
            connection.begin("t1");
            connection.send(queue, "first", "t1", null);
            connection.send(queue, "second", "t1", null);
            connection.send(queue, "before");
            expect(receive(connection, "MESSAGE").getBody(), "before");
            connection.commit("t1");
            expect(bodies(take(connection, 2)), List.of("first", "second"));
        });
    }

    static void abort(String queue) throws Exception {
        session(connection -> {
            connection.begin("t1");
            connection.send(queue, "never", "t1", null);
            connection.abort("t1");
        });
        expect(drain(queue), List.of());
    }

    static void abortedAck(String queue) throws Exception {
        session(connection -> {
            subscribe(connection, queue, "client");
            connection.send(queue, "kept");
            StompFrame message = receive(connection, "MESSAGE");
            connection.begin("t1");
            settle(connection, "ACK", message, "transaction", "t1");
            connection.abort("t1");
        });
        expect(bodies(drain(queue)), List.of("kept"));
    }

    static void body(String queue, int times) throws Exception {
        byte[] body = new byte[256 * times];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) i;
        }
        // A StompFrame formats its body as text: this is how StompConnection sends octets.
        String head = "SEND\ndestination:" + queue + "\ncontent-length:" + body.length + "\n\n";
        session(connection -> {
            connection.sendFrame(head, body);
            connection.sendFrame("\0");
        });
        expect(Arrays.equals(drain(queue).get(0).getContent(), body), true);
    }

    static void headers(String queue) throws Exception {
        // It escapes nothing that it sends, but reads what is escaped.
        boolean isEscaped = !version.equals("1.0");
        HashMap<String, String> sent = map("größe", isEscaped ? "grün\\c a\\\\ b\\n✓" : "grün ✓");
        session(connection -> connection.send(queue, "x", null, sent));
        String received = drain(queue).get(0).getHeaders().get("größe");
        expect(received, isEscaped ? "grün: a\\ b\n✓" : "grün ✓");
    }

    // StompConnection leaves beating to its user, and skips the broker's line ends.
    static void heartBeats(String queue) throws Exception {
        StompConnection connection = open("1000,1000");
        int before = connection.getStompSocket().getInputStream().available();
        for (double waited = 0; waited < silence; waited += 0.5) {
            Thread.sleep(500);
            connection.keepAlive();
        }
        expect(connection.getStompSocket().getInputStream().available() - before >= 2, true);
        connection.send(queue, "alive", null, map("receipt", "r1"));
        expect(receive(connection, "RECEIPT").getHeaders().get("receipt-id"), "r1");
        connection.close();
    }
}
