import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/** One contender of Curator: obeys a line, answers with a line. */
public class CuratorMutex {
    public static void main(String[] args) throws Exception {
        String servers = args[0], recipe = args[1], path = args[2];
        int session = Integer.parseInt(args[3]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(servers, session, session, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        InterProcessLock lock = lock(client, recipe, path);
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            try {
                System.out.println(obey(lock, order));
            } catch (Exception error) {
                System.out.println(error.toString().replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private static InterProcessLock lock(CuratorFramework client, String recipe, String path) {
        switch (recipe) {
            case "Reader":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "Writer":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                return new InterProcessMutex(client, path);
        }
    }

    private static String obey(InterProcessLock lock, String order) throws Exception {
        switch (order) {
            case "try":
                return lock.acquire(1, TimeUnit.MILLISECONDS) ? "yes" : "no";
            case "take":
                return lock.acquire(30, TimeUnit.SECONDS) ? "yes" : "no";
            case "release":
                lock.release();
                return "yes";
            default:
                return "what?";
        }
    }
}
