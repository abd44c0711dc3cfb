//! States on disk: a folder for each model, a file for each part. Files are written beside their place and moved there, so none is ever
//! seen half written; they are readable by their owner only; and none is believed before its digest was checked.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use super::digest::Digest;
use super::{Name, Part, file};

/// Files that wait to be written at most.
const MOST_WAITING: usize = 1024;

/// Bytes that wait to be written at most: what comes faster than the disk takes it is not kept there.
const MOST_WAITING_BYTES: u64 = 256 << 20;

/// Part of the quota that is freed beyond what is needed, so that not every file has to look through the folder.
const FREED_AT_ONCE: u64 = 16;

/// Seconds that make no difference between the ages of files: a prompt's own are written one after the other.
const SAME_AGE: u64 = 60;

/// How old a file that is being written must be for its writer to be gone.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What is counted. Numbers only grow, but for the bytes.
#[derive(Default)]
pub(crate) struct DiskCounts {
    /// Bytes of all files of the folder, of all models.
    pub(crate) used: AtomicU64,
    /// Files that went to make room.
    pub(crate) evicted: AtomicU64,
    /// Files that were not whole or not what they should be.
    pub(crate) rejected: AtomicU64,
    waiting: AtomicU64,
}

/// Files of one model.
pub(crate) struct Disk {
    folder: PathBuf,
    model: Digest,
    /// Files that were there when it was opened, or were written since. Others may have been added or removed.
    known: HashSet<Name>,
    quota: u64,
    counts: Arc<DiskCounts>,
    jobs: Option<SyncSender<Job>>,
    writer: Option<JoinHandle<()>>,
}

enum Job {
    Write(Name, Arc<[u8]>),
    Touch(Name),
}

impl Disk {
    /// The files of a model below `root`, of which all models together have at most `quota` bytes. Their contents are not looked at.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub(crate) fn open(root: &Path, model: Digest, quota: u64) -> io::Result<Self> {
        let folder = root.join(model.to_string());
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder)?;
        let known = fs::read_dir(&folder)?
            .flatten()
            .filter_map(|entry| parse(entry.file_name().to_str()?))
            .collect();
        let counts = Arc::new(DiskCounts::default());
        let (jobs, waiting) = sync_channel(MOST_WAITING);
        let mut writer = Writer {
            root: root.to_owned(),
            folder: folder.clone(),
            model,
            quota,
            counts: Arc::clone(&counts),
            failed: false,
        };
        writer.make_room(0);
        let thread = thread::Builder::new().name("prefixes".into());
        let writer = thread.spawn(move || writer.work(&waiting))?;
        let (jobs, writer) = (Some(jobs), Some(writer));
        Ok(Disk { folder, model, known, quota, counts, jobs, writer })
    }

    /// What is counted.
    pub(crate) fn counts(&self) -> &DiskCounts {
        &self.counts
    }

    /// Whether there seems to be a file.
    pub(crate) fn holds(&self, name: &Name) -> bool {
        self.known.contains(name)
    }

    /// Reads a part. A file that is not what it should be is removed.
    pub(crate) fn read(&mut self, name: &Name) -> Option<Arc<[u8]>> {
        if !self.known.contains(name) {
            return None;
        }
        let path = self.folder.join(write(name));
        match read_file(&path, self.quota) {
            Ok(bytes) => match file::read(&bytes, self.model, name) {
                Ok(payload) => {
                    self.touch(name);
                    return Some(payload.into());
                }
                Err(cause) => self.reject(&path, cause),
            },
            // Another process may have made room.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.reject(&path, &error.to_string()),
        }
        self.known.remove(name);
        None
    }

    /// A part is of no use, though its file is whole.
    pub(crate) fn refuse(&mut self, name: &Name, cause: &str) {
        if self.known.remove(name) {
            self.reject(&self.folder.join(write(name)), cause);
        }
    }

    fn reject(&self, path: &Path, cause: &str) {
        self.counts.rejected.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(file = %path.display(), cause, "a kept prefix is not used, and removed");
        if let Ok(size) = fs::metadata(path).map(|metadata| metadata.len())
            && fs::remove_file(path).is_ok()
        {
            // Saturating, since what others write and remove is not followed.
            let less = |used: u64| Some(used.saturating_sub(size));
            let _ = self.counts.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Has a part written, soon, unless there is a file.
    pub(crate) fn write(&mut self, name: Name, bytes: &Arc<[u8]>) {
        let size = file::size(bytes.len());
        let waiting = self.counts.waiting.load(Ordering::Relaxed);
        if size > self.quota || waiting + size > MOST_WAITING_BYTES || self.known.contains(&name) {
            return;
        }
        self.counts.waiting.fetch_add(size, Ordering::Relaxed);
        if self.send(Job::Write(name, Arc::clone(bytes))) {
            self.known.insert(name);
        } else {
            self.counts.waiting.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// A part was used.
    pub(crate) fn touch(&self, name: &Name) {
        if self.known.contains(name) {
            self.send(Job::Touch(*name));
        }
    }

    /// Whether the writer will do it. It does not, where it has too much to do.
    fn send(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }
}

impl Drop for Disk {
    /// What waits is written first.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // It has said why, if it panicked.
            let _ = writer.join();
        }
    }
}

/// Writes files on a thread of its own.
struct Writer {
    root: PathBuf,
    folder: PathBuf,
    model: Digest,
    quota: u64,
    counts: Arc<DiskCounts>,
    /// Whether it was said that files cannot be written.
    failed: bool,
}

/// A file that may go to make room.
struct Found {
    path: PathBuf,
    size: u64,
    /// Tokens before its cut.
    end: usize,
    age: Duration,
}

impl Writer {
    fn work(&mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Write(name, bytes) => {
                    let size = file::size(bytes.len());
                    if self.counts.used.load(Ordering::Relaxed) + size > self.quota {
                        self.make_room(size);
                    }
                    match self.write(&name, &bytes) {
                        Ok(()) => {
                            self.counts.used.fetch_add(size, Ordering::Relaxed);
                        }
                        Err(error) if !self.failed => {
                            self.failed = true;
                            let folder = self.folder.display();
                            tracing::warn!(%folder, %error, "prefixes cannot be kept on disk");
                        }
                        Err(_) => {}
                    }
                    self.counts.waiting.fetch_sub(size, Ordering::Relaxed);
                }
                // How long ago it was used only decides what goes first.
                Job::Touch(name) => {
                    let opened = File::options().append(true).open(self.folder.join(write(&name)));
                    let _ = opened.and_then(|file| file.set_modified(SystemTime::now()));
                }
            }
        }
    }

    fn write(&self, name: &Name, bytes: &[u8]) -> io::Result<()> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let unfinished = self.folder.join(format!("{process}-{number}.tmp"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&unfinished).and_then(|mut to| {
            file::write(&mut to, self.model, name, bytes)?;
            fs::rename(&unfinished, self.folder.join(write(name)))
        });
        if written.is_err() {
            // There may be none.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Counts what there is, and removes files until so many bytes more have room: those first that were not used for longest, and of
    /// about the same age (within a factor of two) those of the longest prefixes, since others stand on the shorter ones.
    fn make_room(&mut self, more: u64) {
        let mut found = self.find();
        let mut used: u64 = found.iter().map(|file| file.size).sum();
        if used + more > self.quota {
            let class = |file: &Found| (file.age.as_secs() / SAME_AGE + 1).ilog2();
            found.sort_by_key(|file| (class(file), file.end));
            let goal = (self.quota - self.quota / FREED_AT_ONCE).saturating_sub(more);
            while used > goal
                && let Some(file) = found.pop()
            {
                if fs::remove_file(&file.path).is_ok() {
                    self.counts.evicted.fetch_add(1, Ordering::Relaxed);
                }
                used -= file.size;
            }
        }
        self.counts.used.store(used, Ordering::Relaxed);
    }

    /// The files of all models. What else lies in the folder is left alone, but for what was never finished.
    fn find(&self) -> Vec<Found> {
        let now = SystemTime::now();
        let mut found = Vec::new();
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let is_model = |name: &str| Digest::parse(name).is_some();
        for folder in folders.filter(|folder| folder.file_name().to_str().is_some_and(is_model)) {
            for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let (Some(name), Ok(metadata)) = (name.to_str(), entry.metadata()) else {
                    continue;
                };
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let age = now.duration_since(modified).unwrap_or_default();
                if let Some(Name { end, .. }) = parse(name) {
                    found.push(Found { path: entry.path(), size: metadata.len(), end, age });
                } else if name.ends_with(".tmp") && age > ABANDONED {
                    // If it cannot be removed now, the next one may.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        found
    }
}

/// The name of a file.
fn write(name: &Name) -> String {
    let part = match name.part {
        Part::Keys => "keys",
        Part::State => "state",
    };
    format!("{}-{}.{part}", name.digest, name.end)
}

/// What [`write`] has written.
fn parse(text: &str) -> Option<Name> {
    let (rest, part) = text.split_once('.')?;
    let part = match part {
        "keys" => Part::Keys,
        "state" => Part::State,
        _ => return None,
    };
    let (digest, end) = rest.split_once('-')?;
    let name = Name { digest: Digest::parse(digest)?, end: end.parse().ok()?, part };
    (write(&name) == text).then_some(name)
}

/// A whole file, if it is not longer than any can be.
fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > most {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "it is larger than all may be together",
        ));
    }
    fs::read(path)
}
