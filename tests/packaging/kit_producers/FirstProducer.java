import java.util.Map;
import pinlater.Cluster;
import pinlater.NewJob;
import pinlater.Producer;

/** FirstProducer HOST:PORT: enqueues one job, and prints its descriptor. */
public class FirstProducer {
    public static void main(String[] args) {
        try (Producer producer = new Producer(Cluster.of(args[0]))) {
            System.out.println(producer.enqueue("first", NewJob.of("greet", Map.of("to", "ada"))));
        }
    }
}
