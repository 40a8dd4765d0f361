//! Certificate authority of a test, made by the real `openssl`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// Certificate authority, and a server certificate that it signed.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
}

impl Default for Authority {
    fn default() -> Self {
        Self::signing_for("DNS:localhost,IP:127.0.0.1")
    }
}

impl Authority {
    /// Creates an authority whose server has these names, as in `subjectAltName`.
    #[must_use]
    pub fn signing_for(names: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        std::fs::write(path.join("names"), format!("subjectAltName={names}\n")).unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        let authority = "-days 2 -subj /CN=ours -keyout ca.key -out ca.pem";
        openssl(path, &format!("req -x509 {key} {authority}"));
        let request = "-subj /CN=server -keyout server.key -out server.csr";
        openssl(path, &format!("req -new {key} {request}"));
        let sign = "x509 -req -in server.csr -days 2 -CA ca.pem -CAkey ca.key -CAcreateserial";
        openssl(path, &format!("{sign} -extfile names -out server.pem"));
        Self { folder }
    }

    /// Certificate of the authority.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Certificate of the server.
    #[must_use]
    pub fn server_cert(&self) -> PathBuf {
        self.folder.path().join("server.pem")
    }

    /// Private key of the server.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.folder.path().join("server.key")
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let made = command.args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}
