//! A PostgreSQL server for tests: newly initialized, on a free port, and removed when the process that started it ends.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The server that all tests of a process share, each in its own schema.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

pub(crate) struct Server {
    programs: PathBuf,
    folder: PathBuf,
    account: Option<Account>,
    pub(crate) port: u16,
    /// Waits until its standard input is closed, and then stops the server.
    _watch: Child,
}

/// PostgreSQL refuses to run as root.
#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

impl Server {
    pub(crate) fn start() -> Self {
        let server = Self::initialised();
        server.go("max_connections = 400\nfsync = on\nsynchronous_commit = on\n");
        server
    }

    /// A server with TLS. Its certificate is for `localhost`, from the authority in [`Server::authority`].
    #[allow(dead_code, reason = "only some tests use TLS")]
    pub(crate) fn encrypted() -> Self {
        let server = Self::initialised();
        server.make_authority("authority");
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let mut request = server.openssl("req");
        server
            .run(request.args(curve).args("-subj /CN=server -keyout server.key -out server.csr".split(' ')));
        fs::write(server.folder.join("names"), "subjectAltName = DNS:localhost\n")
            .expect("a file is written");
        let signs = "-req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 2";
        let mut sign = server.openssl("x509");
        server.run(sign.args(signs.split(' ')).args("-extfile names -out server.crt".split(' ')));
        let folder = server.folder.display();
        server.go(&format!(
            "ssl = on\nssl_cert_file = '{folder}/server.crt'\nssl_key_file = '{folder}/server.key'\n"
        ));
        server
    }

    /// Creates a CA certificate.
    pub(crate) fn make_authority(&self, name: &str) {
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let mut make = self.openssl("req");
        make.args(curve).args(["-x509", "-days", "2", "-subj", &format!("/CN={name}")]);
        self.run(make.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")]));
    }

    #[allow(dead_code, reason = "only some tests use TLS")]
    pub(crate) fn authority(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    fn openssl(&self, command: &str) -> Command {
        let mut openssl = as_account(Command::new("openssl"), &self.folder, self.account);
        openssl.arg(command);
        openssl
    }

    fn initialised() -> Self {
        let server = Self::empty();
        let mut initdb = server.program("initdb");
        initdb.args([
            "--username=holdpoint",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "-D",
        ]);
        server.run(initdb.arg(server.data()));
        server
    }

    /// A synchronous standby: it has every commit that this server acknowledges from now on.
    #[allow(dead_code, reason = "only some tests have two servers")]
    pub(crate) fn standby(&self) -> Self {
        let standby = Self::empty();
        let mut copy = standby.program("pg_basebackup");
        copy.args(["--host=127.0.0.1", "--username=holdpoint", "--checkpoint=fast", "--no-sync", "-R"]);
        copy.args(["-X", "stream", &format!("--port={}", self.port), "-D"]);
        standby.run(copy.arg(standby.data()));
        standby.go("");
        let settings = fs::read_to_string(self.data().join("postgresql.conf")).expect("its settings");
        let file = self.data().join("postgresql.conf");
        fs::write(file, settings + "synchronous_standby_names = '*'\n").expect("the settings are written");
        self.control(&["reload"]);
        standby
    }

    /// A folder, a port, and the process that cleans up.
    fn empty() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("holdpoint-postgres-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let account = account();
        fs::create_dir_all(&folder).expect("a folder for the server");
        if let Some(Account { user, group }) = account {
            chown(&folder, Some(user), Some(group)).expect("the server's account owns the folder");
        }
        let programs = programs();
        let watch = watch(&programs, &folder, account);
        Self { programs, folder, account, port: free_port(), _watch: watch }
    }

    /// Adds these settings to the existing ones, and starts the server.
    fn go(&self, settings: &str) {
        let own = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n",
            self.port,
            self.folder.display()
        );
        let file = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&file).expect("the folder has settings");
        fs::write(file, before + &own + settings).expect("the settings are written");
        self.control(&["start"]);
    }

    /// The address of its Unix socket.
    pub(crate) fn address(&self) -> String {
        format!("host={} port={} user=holdpoint dbname=postgres", self.folder.display(), self.port)
    }

    /// The address over TCP, with the port of the server or of a proxy.
    #[allow(dead_code, reason = "only some tests use TCP")]
    pub(crate) fn address_by_port(&self, port: u16) -> String {
        format!("host=127.0.0.1 port={port} user=holdpoint dbname=postgres")
    }

    /// Runs `pg_ctl`, and waits until it is done.
    pub(crate) fn control(&self, what: &[&str]) {
        let mut control = self.program("pg_ctl");
        control.args(what).args(["--wait", "--silent", "-D"]).arg(self.data());
        self.run(control.arg("-l").arg(self.folder.join("log")));
    }

    /// Runs SQL directly on the database, without a store.
    #[allow(dead_code, reason = "the store's tests have their own client")]
    pub(crate) fn say(&self, sql: &str) {
        let mut psql = self.program("psql");
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", sql]);
        self.run(psql.arg(format!("host=127.0.0.1 port={} user=holdpoint dbname=postgres", self.port)));
    }

    /// Runs a script of any length, such as a dump.
    #[allow(dead_code, reason = "the store's tests have their own client")]
    pub(crate) fn load(&self, script: &str) {
        let file = self.folder.join("script.sql");
        fs::write(&file, script).expect("the script can be written");
        let mut psql = self.program("psql");
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file"]).arg(file);
        self.run(psql.arg(format!("host=127.0.0.1 port={} user=holdpoint dbname=postgres", self.port)));
    }

    /// The schema as SQL that creates it again.
    #[allow(dead_code, reason = "only some tests restore a store")]
    pub(crate) fn dump(&self, schema: &str) -> String {
        let file = self.folder.join("dump.sql");
        let mut dump = self.program("pg_dump");
        dump.args(["--no-password", "--schema", schema, "--file"]).arg(&file);
        self.run(dump.arg(format!("host=127.0.0.1 port={} user=holdpoint dbname=postgres", self.port)));
        fs::read_to_string(file).expect("the dump was written")
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn program(&self, name: &str) -> Command {
        as_account(Command::new(self.programs.join(name)), &self.folder, self.account)
    }

    fn run(&self, command: &mut Command) {
        // The output goes to a file: a server in the background would keep a pipe open forever.
        let said = fs::File::create(self.folder.join("said")).expect("the output file can be created");
        let again = said.try_clone().expect("the file handle can be cloned");
        let status = command.stdin(Stdio::null()).stdout(said).stderr(again).status();
        let told = || fs::read_to_string(self.folder.join("said")).unwrap_or_default();
        assert!(status.as_ref().is_ok_and(|status| status.success()), "{command:?}: {status:?}\n{}", told());
    }
}

fn as_account(mut command: Command, folder: &Path, account: Option<Account>) -> Command {
    if let Some(Account { user, group }) = account {
        command.uid(user).gid(group);
    }
    command.current_dir(folder).env_remove("PGDATA").env("LC_ALL", "C");
    command
}

/// The folder with PostgreSQL's programs, which the script installs if it can.
fn programs() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/postgres");
    let found = Command::new(&script).stderr(Stdio::inherit()).output().expect("the script can be started");
    assert!(found.status.success(), "{} found no PostgreSQL", script.display());
    PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())
}

/// An account other than root, if this process runs as root.
fn account() -> Option<Account> {
    let own = fs::metadata("/proc/self").ok().map(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata));
    if own != Some(0) {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").expect("the accounts of this machine");
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map_while(|number| number.parse().ok());
        Some(Account { user: numbers.next()?, group: numbers.next()? })
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("an account other than root"))
}

fn watch(programs: &Path, folder: &Path, account: Option<Account>) -> Child {
    let last_words = "cat; \"$0/pg_ctl\" -D \"$1/data\" -m immediate stop; rm -rf \"$1\"";
    let mut shell = as_account(Command::new("sh"), Path::new("/"), account);
    shell.args(["-c", last_words]).arg(programs).arg(folder);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A signal that interrupts the tests must not end the process that cleans up.
    shell.process_group(0);
    shell.spawn().expect("a shell")
}

/// A port that no process listens on. It is below the system's ephemeral ports, so that no other process gets it by
/// chance before the server binds it.
fn free_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(64);
    let ports = std::iter::repeat_with(|| first.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed)));
    let mut ports = ports.take(10_000).filter_map(|number| u16::try_from(20_000 + number % 10_000).ok());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closing its input makes the watch process clean up. Wait until it is done.
        drop(self._watch.stdin.take());
        let _ = self._watch.wait();
    }
}
