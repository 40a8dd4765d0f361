//! Errors of opening: address, credentials, TLS.

use std::{
    net::TcpListener,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    process::Command,
};

use stayput_stores::StoreOpenError;
use stayput_testkit::postgres::Postgres;

use crate::kit::{client, open, open_error, record};

#[tokio::test]
async fn unreachable_server_is_explained() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://ann:secret@{}/d", silent.local_addr().unwrap());
    assert!(open_error(&url).await.contains("no answer within 5 s"));
    drop(silent);
    assert!(open_error(&url).await.contains("refused"));
    assert!(open_error("postgres://u:secret@h/d?colour=secret").await.contains("colour"));

    let server = Postgres::with(|data| {
        let rules = "host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
        Vec::new()
    });
    let admin = client(&server.url()).await;
    let role = "create role ann login password 'right'; grant create on schema public to ann";
    admin.batch_execute(role).await.unwrap();
    let url = |password| server.url().replace("stayput@", &format!("ann:{password}@"));
    let text = open_error(&url("secret")).await;
    assert_eq!(
        text,
        "the postgres store cannot be opened: db error: \
         FATAL: password authentication failed for user \"ann\""
    );
    open(&url("right")).await;
    let latin = "create database latin encoding 'LATIN1' template template0";
    admin.batch_execute(latin).await.unwrap();
    let text = open_error(&server.url().replace("/postgres", "/latin")).await;
    assert!(text.contains("LATIN1") && text.contains("UTF8"), "{text}");
}

fn openssl(folder: &Path, arguments: &str) {
    let made =
        Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// Creates an authority, NAME.pem with NAME.key.
fn create_authority(folder: &Path, name: &str) {
    openssl(
        folder,
        &format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} \
             -keyout {name}.key -out {name}.pem"
        ),
    );
}

/// Starts a server that requires TLS, except for its administrator.
fn start_encrypted(authorities: &Path) -> Postgres {
    Postgres::with(|data| {
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
        std::fs::write(authorities.join("names"), names).unwrap();
        openssl(
            authorities,
            "req -new -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr",
        );
        openssl(
            authorities,
            "x509 -req -in server.csr -days 2 -CA right.pem -CAkey right.key -CAcreateserial \
             -extfile names -out server.pem",
        );
        let like = std::fs::metadata(data).unwrap();
        for file in ["server.key", "server.pem"] {
            let copy = data.join(file);
            std::fs::copy(authorities.join(file), &copy).unwrap();
            // The key must belong to the user the server runs as.
            chown(copy, Some(like.uid()), Some(like.gid())).unwrap();
        }
        let rules = "hostssl all ann 127.0.0.1/32 trust\nhost all stayput 127.0.0.1/32 trust\n";
        std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
        let options = ["ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key"];
        let option = |option: &str| ["-c".to_owned(), option.to_owned()];
        options.into_iter().flat_map(option).collect()
    })
}

#[tokio::test]
async fn encryption_is_verified_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    create_authority(folder.path(), "right");
    create_authority(folder.path(), "wrong");
    let server = start_encrypted(folder.path());
    let role = "create role ann login; grant create on schema public to ann";
    let admin = client(&server.url()).await;
    admin.batch_execute(role).await.unwrap();
    let url = server.url().replace("stayput@", "ann@");
    let file = |name: &str| folder.path().join(name).display().to_string();

    let store = open(&format!("{url}?sslrootcert={}", file("right.pem"))).await;
    store.store.insert(&record(), None).await.unwrap();
    let encrypted = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) \
                     where ssl and usename = 'ann'";
    let row = admin.query_one(encrypted, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1);

    let wrong = format!("{url}?sslmode=verify-full&sslrootcert={}", file("wrong.pem"));
    assert!(open_error(&wrong).await.contains("certificate"));
    assert!(open_error(&format!("{url}?sslmode=require")).await.contains("certificate"));
    // The certificate is valid for this address, but not for that name.
    let elsewhere = url.replace("127.0.0.1", "elsewhere");
    let elsewhere = format!("{elsewhere}?hostaddr=127.0.0.1&sslrootcert={}", file("right.pem"));
    assert!(open_error(&elsewhere).await.contains("certificate"));
    assert!(open_error(&url).await.contains("no encryption"));
    for bad in ["names", "absent.pem"] {
        let result = stayput_stores::open(&format!("{url}?sslrootcert={}", file(bad))).await;
        assert!(matches!(result, Err(StoreOpenError::File { .. })), "{result:?}");
    }
}
