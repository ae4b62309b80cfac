//! A PostgreSQL server for one run of the matrix: new, on a free port, and stopped with the process that started it.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// Enough for three nodes in each of many worlds, and for the readers of the stored results.
const CONNECTIONS_MAX: u32 = 600;

pub struct Server {
    programs: PathBuf,
    folder: PathBuf,
    system_user: Option<SystemUser>,
    port: u16,
    /// Serializes the operations on the server.
    order: Mutex<()>,
    /// Waits until its stdin is closed, which happens when this process ends, and then stops the server.
    watch: Child,
}

/// The account to run as: PostgreSQL refuses to run as root.
#[derive(Clone, Copy)]
struct SystemUser {
    user: u32,
    group: u32,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

impl Server {
    /// Starts a new server with its files in this folder.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let server = Self::prepare(folder)?;
        let mut initdb = server.program("initdb");
        initdb.args(["--username=holdpoint", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]);
        server.run(initdb.arg("-D").arg(server.data()))?;
        server.configure("")?;
        server.control(&["start"])?;
        Ok(server)
    }

    /// Starts a standby that follows this server. From then on it has every commit that this server acknowledges.
    pub fn start_standby(&self, folder: &Path) -> io::Result<Self> {
        let standby = Self::prepare(folder)?;
        let mut copy = standby.program("pg_basebackup");
        let address = format!("{} application_name=standby", self.address());
        copy.args(["--write-recovery-conf", "--no-sync", "--checkpoint=fast", "-d", &address, "-D"]);
        standby.run(copy.arg(standby.data()))?;
        standby.configure("")?;
        standby.control(&["start"])?;
        self.configure("synchronous_standby_names = 'standby'\n")?;
        self.control(&["reload"])?;
        Ok(standby)
    }

    fn prepare(folder: &Path) -> io::Result<Self> {
        let system_user = system_user()?;
        fs::create_dir_all(folder)?;
        if let Some(SystemUser { user, group }) = system_user {
            chown(folder, Some(user), Some(group))?;
        }
        let programs = programs()?;
        let watch = watch(&programs, folder, system_user)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self { programs, folder: folder.to_owned(), system_user, port, order: Mutex::default(), watch })
    }

    fn configure(&self, more: &str) -> io::Result<()> {
        let settings = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             max_connections = {CONNECTIONS_MAX}\nfsync = on\nsynchronous_commit = on\n{more}",
            self.port,
            self.folder.display()
        );
        // In this file the last setting wins.
        let file = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&file)?;
        fs::write(file, before + &settings)
    }

    /// The address for processes on this machine.
    #[must_use]
    pub fn address(&self) -> String {
        format!("host={} port={} user=holdpoint dbname=postgres", self.folder.display(), self.port)
    }

    /// An address that leads to whichever of the two servers accepts writes.
    #[must_use]
    pub fn address_with(&self, other: &Self) -> String {
        let (one, two) = (self.folder.display(), other.folder.display());
        let options = "user=holdpoint dbname=postgres target_session_attrs=read-write";
        format!("host={one},{two} port={},{} {options}", self.port, other.port)
    }

    /// The same server at another port.
    #[must_use]
    pub fn address_by_port(port: u16) -> String {
        format!("host=127.0.0.1 port={port} user=holdpoint dbname=postgres")
    }

    /// The TCP port that a proxy connects to.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Kills every server process at once and restarts the server with everything it had acknowledged.
    pub fn crash(&self) -> io::Result<()> {
        self.control(&["restart", "-m", "immediate"])
    }

    /// Kills the server permanently.
    pub fn die(&self) -> io::Result<()> {
        self.control(&["stop", "-m", "immediate"])
    }

    /// Promotes this standby, so that it accepts writes.
    pub fn promote(&self) -> io::Result<()> {
        self.control(&["promote"])
    }

    /// Disconnects the schema's clients and empties its tables, if there are any. Creating new tables for each world
    /// would slow down every later one: PostgreSQL looks them all up in the same catalogue.
    pub fn clear(&self, schema: &str) -> io::Result<()> {
        let _one_at_a_time = self.order.lock();
        let sql = include_str!("clear.sql").replace("SCHEMA", schema);
        let mut psql = self.program("psql");
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", &self.address()]);
        self.run(psql.args(["--command", &sql]))
    }

    fn control(&self, what: &[&str]) -> io::Result<()> {
        let _one_at_a_time = self.order.lock();
        let mut control = self.program("pg_ctl");
        control.args(what).args(["--silent", "-D"]).arg(self.data());
        self.run(control.arg("-l").arg(self.folder.join("log")))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn program(&self, name: &str) -> Command {
        as_system_user(Command::new(self.programs.join(name)), &self.folder, self.system_user)
    }

    /// Runs a command with its output in a file: a server that stays in the background would keep a pipe open
    /// forever.
    fn run(&self, command: &mut Command) -> io::Result<()> {
        let path = self.folder.join("said");
        let said = File::create(&path)?;
        let status = command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).status()?;
        if status.success() {
            return Ok(());
        }
        let output = fs::read_to_string(path).unwrap_or_default();
        Err(io::Error::other(format!("{command:?}: {status}\n{output}")))
    }
}

fn as_system_user(mut command: Command, folder: &Path, system_user: Option<SystemUser>) -> Command {
    if let Some(SystemUser { user, group }) = system_user {
        command.uid(user).gid(group);
    }
    command.current_dir(folder).env_remove("PGDATA").env("LC_ALL", "C");
    command
}

/// The folder with PostgreSQL's programs. Installs them if possible.
fn programs() -> io::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/postgres");
    let found = Command::new(&script).stderr(Stdio::inherit()).output()?;
    if found.status.success() {
        return Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()));
    }
    Err(io::Error::other(format!("{} found no PostgreSQL", script.display())))
}

/// A non-root account, if this process is root.
fn system_user() -> io::Result<Option<SystemUser>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map_while(|number| number.parse().ok());
        Some(SystemUser { user: numbers.next()?, group: numbers.next()? })
    };
    let found = find("postgres").or_else(|| find("nobody"));
    found.map(Some).ok_or_else(|| io::Error::other("there is no account beside root"))
}

fn watch(programs: &Path, folder: &Path, system_user: Option<SystemUser>) -> io::Result<Child> {
    let last_words = "cat; \"$0/pg_ctl\" -D \"$1/data\" -m immediate stop; rm -rf \"$1\"/*";
    let mut shell = as_system_user(Command::new("sh"), Path::new("/"), system_user);
    shell.args(["-c", last_words]).arg(programs).arg(folder);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A signal that interrupts the matrix must not end the process that cleans up after it.
    shell.process_group(0);
    shell.spawn()
}
