import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.List;
import pinlater.Cluster;
import pinlater.Worker;

/** The jobs on the kit for Java: OnKit [SLOTS] works on the queues of BENCH_QUEUES; each job writes a line of the record. */
public class OnKit {
    private static final int LINE_BYTES = 20;

    public static void main(String[] arguments) throws Exception {
        Path path = Path.of(System.getenv("BENCH_RECORD"));
        // opened for append, so that each write is one line, as record.py reads them
        FileChannel record = FileChannel.open(path, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        Worker.Builder worker = Worker.builder(Cluster.of(System.getenv("BENCH_BROKER")));
        if (arguments.length > 0) {
            worker.slots(Integer.parseInt(arguments[0]));
        }
        List<String> names = List.of(System.getenv("BENCH_QUEUES").split(","));
        for (String name : names) {
            worker.queue(name).handle("noop_" + name, job -> {
                ByteBuffer line = ByteBuffer.allocate(LINE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
                line.putInt(names.indexOf(name)).putLong((Long) job.args().get(0)).putLong(nowNanos()).flip();
                record.write(line);
                return null;
            });
        }
        worker.build().run();
    }

    private static long nowNanos() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000 + now.getNano();
    }
}
