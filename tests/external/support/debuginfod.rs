//! Runs a local debuginfod server.

use std::net::{Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::processes::PATIENCE;
use super::scratch;
use super::tools::{compile, text};

/// A running server, stopped on drop.
pub struct Server {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server for the files in a directory.
    pub fn start(served: &Path) -> Self {
        let folder = scratch();
        let loopback = compile(folder.path(), "loopback.c", &["-shared", "-fPIC"]);
        let port = free_port();
        let process = Command::new("debuginfod")
            .arg("-F")
            .args(["-p", &port.to_string()])
            .args(["-d", text(&folder.path().join("database"))])
            .arg(served)
            .env("LD_PRELOAD", &loopback)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("debuginfod: {error}; scripts/test installs it"));
        Self {
            process,
            port,
            folder,
        }
    }

    /// Returns the file that elfutils' client gets for a build ID; retries until the server has scanned its
    /// directory.
    pub fn executable(&mut self, build_id: &str) -> Vec<u8> {
        let start = Instant::now();
        for attempt in 0.. {
            if let Some(path) = self.find(build_id, attempt) {
                return std::fs::read(path).unwrap();
            }
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "debuginfod: {ended:?}");
            assert!(start.elapsed() < PATIENCE, "{build_id} is not found");
            std::thread::sleep(Duration::from_millis(100));
        }
        unreachable!()
    }

    fn find(&self, build_id: &str, attempt: u32) -> Option<PathBuf> {
        // The client caches negative results.
        let cache = self.folder.path().join(format!("client-{attempt}"));
        let port = self.port;
        let output = Command::new("debuginfod-find")
            .args(["executable", build_id])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.folder.path())
            .env("DEBUGINFOD_CACHE_PATH", &cache)
            .env(
                "DEBUGINFOD_URLS",
                format!("http://[::1]:{port}/ http://127.0.0.1:{port}/"),
            )
            .output()
            .unwrap_or_else(|error| panic!("debuginfod-find: {error}; scripts/test installs it"));
        let path = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| PathBuf::from(path.trim_end()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an unused port.
fn free_port() -> u16 {
    let listener =
        TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).or_else(|_| TcpListener::bind(("127.0.0.1", 0)));
    listener.unwrap().local_addr().unwrap().port()
}
