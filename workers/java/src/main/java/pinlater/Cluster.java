package pinlater;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Where the servers are, and who calls them. Immutable; producers and workers may share one. */
public final class Cluster {
    /** A server's port where an address names none. */
    static final int DEFAULT_PORT = 9010;

    /** That of the Python client: all attempts and pauses of a call together. */
    private static final Duration CALL_TIMEOUT = Duration.ofSeconds(10);

    private final ServerList servers;
    private final String source;
    private final String token;
    private final Path tokenFile;
    private final SSLContext tls;
    private final Duration callTimeout;

    /** A server: at {@code address}, or where that is null at whichever one the system finds; or all addresses of a name. */
    record Server(String host, int port, boolean isName, InetAddress address) {
        private static final String NAME = "dns:";

        static Server of(String text) {
            boolean isName = text.startsWith(NAME) && !text.substring(NAME.length()).matches("\\d*");
            String address = isName ? text.substring(NAME.length()) : text;
            int colon = address.lastIndexOf(':');
            boolean hasPort = colon >= 0 && !address.endsWith("]") && address.indexOf(':') == colon
                    || address.startsWith("[") && address.contains("]:");
            String host = hasPort ? address.substring(0, colon) : address;
            try {
                int port = hasPort ? Integer.parseInt(address.substring(colon + 1)) : DEFAULT_PORT;
                if (host.isBlank() || isName && host.contains(":") || port < 1 || port > 65_535) {
                    throw new NumberFormatException();
                }
                return new Server(host.replaceAll("^\\[|\\]$", ""), port, isName, null);
            } catch (NumberFormatException invalid) {
                throw new IllegalArgumentException("\"" + text + "\" is no server; allowed: HOST:PORT, dns:NAME:PORT", invalid);
            }
        }

        Server at(InetAddress found) {
            return new Server(host, port, false, found);
        }

        @Override
        public String toString() {
            String at = address == null ? "" : " at " + address.getHostAddress();
            return (isName ? NAME : "") + host + ":" + port + at;
        }
    }

    private Cluster(Builder builder) {
        servers = new ServerList(builder.servers.stream().map(Server::of).toList(), builder.resolver);
        if (builder.servers.isEmpty()) {
            throw new IllegalArgumentException("a cluster without servers; name at least one as HOST:PORT");
        }
        source = builder.source;
        token = builder.token;
        tokenFile = builder.tokenFile;
        tls = builder.tls;
        callTimeout = builder.callTimeout;
        token(); // a file without a token is an error of the start
    }

    /**
     * A cluster without TLS and without a token.
     *
     * @param servers addresses as HOST:PORT, or dns:NAME:PORT for all addresses of a name; one that does not answer is
     *     passed over for another
     */
    public static Cluster of(String... servers) {
        return builder(servers).build();
    }

    /**
     * Begins a cluster with more to say.
     *
     * @param servers addresses as HOST:PORT, or dns:NAME:PORT for all addresses of a name; one that does not answer is
     *     passed over for another
     */
    public static Builder builder(String... servers) {
        return new Builder(List.of(servers));
    }

    /** Those of now, of which there is one at least. */
    List<Server> servers() {
        return servers.now();
    }

    void serverFailed() {
        servers.failed();
    }

    String source() {
        return source;
    }

    SSLContext tls() {
        return tls;
    }

    Duration callTimeout() {
        return callTimeout;
    }

    boolean hasTokenFile() {
        return tokenFile != null;
    }

    /** The token to show now; null: none. A file is read anew each time, since tokens are exchanged there. */
    String token() {
        if (tokenFile == null) {
            return token;
        }
        try {
            refuseWhereOthersRead(tokenFile);
            String first = Files.readString(tokenFile).lines().findFirst().orElse("").strip();
            if (!first.isEmpty()) {
                return first;
            }
        } catch (IOException error) {
            throw new IllegalArgumentException("token file " + tokenFile + " cannot be read: " + error, error);
        }
        throw new IllegalArgumentException("token file " + tokenFile + " is empty; it has the token in its first line");
    }

    private static void refuseWhereOthersRead(Path file) throws IOException {
        boolean knowsModes = FileSystems.getDefault().supportedFileAttributeViews().contains("posix");
        boolean open = knowsModes && Files.getPosixFilePermissions(file).contains(PosixFilePermission.OTHERS_READ);
        if (open && !"allow".equals(System.getenv("PINLATER_OPEN_SECRETS"))) {
            throw new IllegalArgumentException("other users can read token file " + file + ": chmod 600, or set "
                    + "PINLATER_OPEN_SECRETS=allow where nobody else uses the machine");
        }
    }

    /** HOST:PID, as operators know this process. */
    static String processName() {
        return hostName() + ":" + ProcessHandle.current().pid();
    }

    static String hostName() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException error) {
            return "localhost";
        }
    }

    /** The settings of a {@link Cluster}. */
    public static final class Builder {
        private final List<String> servers;
        private ServerList.Resolver resolver = InetAddress::getAllByName;
        private String source = processName();
        private String token;
        private Path tokenFile;
        private SSLContext tls;
        private Duration callTimeout = CALL_TIMEOUT;

        private Builder(List<String> servers) {
            this.servers = new ArrayList<>(servers);
        }

        Builder resolver(ServerList.Resolver resolver) {
            this.resolver = resolver;
            return this;
        }

        /** How logs, the audit and the attempts of a job name this program; HOST:PID unless set. */
        public Builder source(String source) {
            this.source = source;
            return this;
        }

        /** The token that proves who calls. */
        public Builder token(String token) {
            this.token = token;
            this.tokenFile = null;
            return this;
        }

        /** A file with the token in its first line, read for each connection and again when servers refuse a token. */
        public Builder tokenFile(Path file) {
            this.token = null;
            this.tokenFile = file;
            return this;
        }

        /**
         * TLS to servers whose certificates an authority of this PEM file has signed, for the names that are called.
         *
         * @throws IllegalArgumentException if the file has no certificates
         */
        public Builder ca(Path file) {
            try (InputStream stream = Files.newInputStream(file)) {
                KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
                trusted.load(null, null);
                int number = 0;
                for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(stream)) {
                    trusted.setCertificateEntry("ca" + number++, each);
                }
                if (number == 0) {
                    throw new IllegalArgumentException(file + " has no certificates");
                }
                TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
                trust.init(trusted);
                SSLContext context = SSLContext.getInstance("TLS");
                context.init(null, trust.getTrustManagers(), null);
                return tls(context);
            } catch (IOException | GeneralSecurityException error) {
                throw new IllegalArgumentException("the authorities of " + file + " cannot be read: " + error, error);
            }
        }

        /** TLS by a context of the program, such as one with a client certificate. */
        public Builder tls(SSLContext context) {
            this.tls = context;
            return this;
        }

        /** How long a call may take with all its attempts and pauses; 10 seconds unless set. */
        public Builder callTimeout(Duration timeout) {
            this.callTimeout = timeout;
            return this;
        }

        /**
         * The cluster.
         *
         * @throws IllegalArgumentException if an address or the token file cannot be
         */
        public Cluster build() {
            return new Cluster(this);
        }
    }
}
