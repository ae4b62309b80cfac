//! A PostgreSQL server for the worlds of this process: new, on its own socket, and stopped with the process.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Worlds lose processes, not machines: the effects of a sync are left to the store's own tests.
const SETTINGS: &str = "\
listen_addresses = ''
max_connections = 400
fsync = off
full_page_writes = off
jit = off
";

/// The server's address. The first caller starts the server.
pub(crate) fn address() -> Result<&'static str, String> {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    let server = SERVER.get_or_init(Server::start).as_ref();
    server.map(|server| server.address.as_str()).map_err(Clone::clone)
}

struct Server {
    address: String,
    /// Holds the other end of a pipe to this process, which closes when this process ends in any way. Then it stops the
    /// server and removes its folder.
    _watch: Child,
}

/// The server's programs, folder and account.
struct Home {
    programs: PathBuf,
    folder: PathBuf,
    account: Option<Account>,
}

/// The account to run as: PostgreSQL refuses to run as root.
#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

impl Server {
    fn start() -> Result<Self, String> {
        let home = Home::make()?;
        let watch = home.watch()?;
        let data = home.folder.join("data");
        let mut initdb = home.command(home.programs.join("initdb"));
        initdb.args(["--username=holdpoint", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]);
        home.run(initdb.arg("-D").arg(&data))?;
        let file = data.join("postgresql.conf");
        let socket = format!("unix_socket_directories = '{}'\n", home.folder.display());
        let written =
            fs::read_to_string(&file).and_then(|before| fs::write(&file, before + SETTINGS + &socket));
        written.map_err(|why| format!("the server's settings: {why}"))?;
        let mut start = home.command(home.programs.join("pg_ctl"));
        start.args(["start", "--wait", "--silent", "-D"]).arg(&data).arg("-l").arg(home.folder.join("log"));
        home.run(&mut start)?;
        let address = format!("host={} user=holdpoint dbname=postgres", home.folder.display());
        Ok(Self { address, _watch: watch })
    }
}

impl Home {
    fn make() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("holdpoint-sim-postgres-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let account = account()?;
        if let Some(Account { user, group }) = account {
            chown(&folder, Some(user), Some(group))
                .map_err(|why| format!("{} cannot be given away: {why}", folder.display()))?;
        }
        Ok(Self { programs: programs()?, folder, account })
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(Account { user, group }) = self.account {
            command.uid(user).gid(group);
        }
        command.current_dir(&self.folder).env_remove("PGDATA").env("LC_ALL", "C");
        command
    }

    fn run(&self, command: &mut Command) -> Result<(), String> {
        // Output goes to a file: a server that stays in the background would keep a pipe open forever.
        let path = self.folder.join("said");
        let said = File::create(&path).and_then(|file| Ok((file.try_clone()?, file)));
        let (said, again) = said.map_err(|why| format!("{}: {why}", path.display()))?;
        let status = command.stdin(Stdio::null()).stdout(said).stderr(again).status();
        if status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            return Ok(());
        }
        Err(format!("{command:?}: {status:?}\n{}", fs::read_to_string(&path).unwrap_or_default()))
    }

    fn watch(&self) -> Result<Child, String> {
        let last_words = "cat; \"$0/pg_ctl\" -D \"$1/data\" -m immediate stop; rm -rf \"$1\"";
        let mut shell = self.command("sh");
        shell.args(["-c", last_words]).arg(&self.programs).arg(&self.folder);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not in the folder that it removes, and not in our process group, so that a signal to us does not end it.
        shell.current_dir("/").process_group(0);
        shell.spawn().map_err(|why| format!("no shell: {why}"))
    }
}

/// The folder with PostgreSQL's programs. Installs them if possible.
fn programs() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/postgres");
    let found = Command::new(&script).stderr(Stdio::inherit()).output();
    match found {
        Ok(found) if found.status.success() => {
            Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
        }
        Ok(_) => Err("there is no PostgreSQL on this machine".into()),
        Err(why) => Err(format!("{}: {why}", script.display())),
    }
}

/// A non-root account, if this process is root.
fn account() -> Result<Option<Account>, String> {
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd").map_err(|why| format!("/etc/passwd: {why}"))?;
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map_while(|number| number.parse().ok());
        Some(Account { user: numbers.next()?, group: numbers.next()? })
    };
    let other = find("postgres").or_else(|| find("nobody"));
    other.map(Some).ok_or_else(|| "PostgreSQL refuses to run as root, and there is no other account".into())
}
