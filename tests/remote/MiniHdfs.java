import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS of one name node and one data node, on this machine: says its port, and ends when its input does. */
public class MiniHdfs {
    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.setBoolean("dfs.permissions.enabled", false);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, new File(args[0])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("READY " + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) {
        }
        cluster.shutdown();
        System.exit(0);
    }
}
