//! A file that gets every record as a line. What it has is read from the file itself.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use engine::store::Tenant;
use machine::audit::SealedRecord;
use machine::id::Digest;

pub(super) struct FileSink {
    path: PathBuf,
    /// None until it is opened, and after a failure.
    file: Option<File>,
    newest: BTreeMap<Tenant, (u64, Digest)>,
}

impl FileSink {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, file: None, newest: BTreeMap::new() }
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The newest record that the file has of a tenant.
    pub(super) fn newest(&self, tenant: &Tenant) -> Option<(u64, Digest)> {
        self.newest.get(tenant).copied()
    }

    /// Reads what the file has, unless it is open. A line that a crash cut off is removed: its record is sent again.
    pub(super) fn open(&mut self) -> Result<(), String> {
        // A file that was moved away, as log rotation does, is created again.
        if self.file.is_some() && self.path.exists() {
            return Ok(());
        }
        self.file = None;
        self.newest.clear();
        let cannot = |why: &std::io::Error| format!("{} cannot be written: {why}", self.path.display());
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&self.path).map_err(|why| cannot(&why))?;
        let mut whole_bytes = 0;
        let mut lines = BufReader::new(&file);
        let mut line = String::new();
        while lines.read_line(&mut line).map_err(|why| cannot(&why))? > 0 {
            if !line.ends_with('\n') {
                break;
            }
            whole_bytes += line.len() as u64;
            if let Ok(record) = SealedRecord::from_line(line.trim_end())
                && let Ok(tenant) = record.text("tenant")
            {
                self.newest.insert(Tenant::from(tenant.as_str()), (record.seq, record.hash));
            }
            line.clear();
        }
        file.set_len(whole_bytes).map_err(|why| cannot(&why))?;
        self.file = Some(file);
        Ok(())
    }

    /// Returns once the lines are on disk.
    pub(super) fn append(
        &mut self,
        tenant: &Tenant,
        last: &SealedRecord,
        text: String,
    ) -> Result<(), String> {
        let Some(file) = &mut self.file else { return Err("the file is not open".to_owned()) };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        if let Err(why) = written {
            // Part of a line may be there.
            self.file = None;
            return Err(format!("{} cannot be written: {why}", self.path.display()));
        }
        self.newest.insert(tenant.clone(), (last.seq, last.hash));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use machine::audit::AuditChain;

    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_removed_and_the_rest_is_remembered() {
        let folder = std::env::temp_dir().join(format!("holdpoint-sink-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("audit.jsonl");
        let mut chain = AuditChain::START;
        let mut lines = (0..2).map(|_| chain.seal(r#"{"tenant":"acme"}"#.into()).to_line().expect("a line"));
        let (first, second) = (lines.next().expect("one"), lines.next().expect("two"));
        std::fs::write(&path, format!("{first}\n{}", &second[..20])).expect("it is written");
        let mut sink = FileSink::new(path.clone());
        sink.open().expect("it opens");
        let tenant = Tenant::from("acme");
        assert_eq!(sink.newest(&tenant).map(|(seq, _)| seq), Some(1));
        let last = SealedRecord::from_line(&second).expect("a record");
        sink.append(&tenant, &last, format!("{second}\n")).expect("it is written");
        assert_eq!(std::fs::read_to_string(&path).expect("it is read"), format!("{first}\n{second}\n"));
        let mut again = FileSink::new(path);
        again.open().expect("it opens");
        assert_eq!(again.newest(&tenant), Some((2, last.hash)));
        std::fs::remove_dir_all(folder).expect("it is removed");
    }
}
