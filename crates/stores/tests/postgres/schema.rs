//! Creation of the schema, and the sizes that it accepts.

use std::time::Duration;

use stayput_core::{
    Agent, Expiry, Holder, Key, Owner, Record, Retry, StateLimits, StateWrite, StoreError,
    Timestamp,
};
use stayput_stores::StoreOpenError;
use stayput_testkit::postgres::PostgresUrl;

use crate::kit::{MINUTE, NOW, client, open, put, record, record_with_key, run_concurrently};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_opens_of_an_empty_database_succeed() {
    let at = PostgresUrl::empty();
    let opened = run_concurrently(8, |_| {
        let url = at.url.clone();
        async move { stayput_stores::open(&url).await }
    });
    for database in opened.await {
        database.unwrap().store.insert(&record(), None).await.unwrap();
    }
    let versions = "select array_agg(version) from stayput_schema";
    let row = client(&at.url).await.query_one(versions, &[]).await;
    assert_eq!(row.unwrap().get::<_, Vec<i64>>(0), [3]);
    let again = open(&at.url).await.store;
    assert_eq!(again.list(None, None, 99).await.unwrap().len(), 8);
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let at = PostgresUrl::empty();
    open(&at.url).await;
    let newer = "insert into stayput_schema (version) values (99)";
    client(&at.url).await.batch_execute(newer).await.unwrap();
    match stayput_stores::open(&at.url).await {
        Err(StoreOpenError::NewerSchema { store: "postgres", found: 99, known: 3 }) => {}
        other => panic!("{other:?}"),
    }
}

/// Schemas before 3 stored other field names, so they are not migrated.
#[tokio::test]
async fn older_schema_is_refused() {
    let at = PostgresUrl::empty();
    open(&at.url).await;
    let older = "update stayput_schema set version = 2";
    client(&at.url).await.batch_execute(older).await.unwrap();
    match stayput_stores::open(&at.url).await {
        Err(StoreOpenError::OlderSchema { store: "postgres", found: 2, oldest: 3 }) => {}
        other => panic!("{other:?}"),
    }
}

/// Two schemas of one database are two stores, and a role needs no more rights than documented.
#[tokio::test]
async fn store_works_in_any_schema_with_documented_rights() {
    let at = PostgresUrl::empty();
    let admin = client(&at.url).await;
    let role = at.url.rsplit_once('/').unwrap().1;
    admin.batch_execute("create schema side").await.unwrap();
    let one = open(&at.url).await.store;
    let other = open(&format!("{}?options=-c%20search_path%3Dside", at.url)).await;
    one.insert(&record_with_key("k"), None).await.unwrap();
    other.store.insert(&record_with_key("k"), None).await.unwrap();
    assert_eq!(one.list(None, None, 9).await.unwrap().len(), 1);

    let grant = format!(
        "create role {role} login; \
         grant select, insert, update, delete on all tables in schema public to {role}"
    );
    admin.batch_execute(&grant).await.unwrap();
    let database = open(&at.url.replace("stayput@", &format!("{role}@"))).await;
    let (store, record) = (database.store, record_with_key("l"));
    let lease = store.acquire_lease(&Holder::unreachable(), MINUTE).await.unwrap();
    store.insert(&record, None).await.unwrap();
    store.claim(record.id, lease).await.unwrap();
    store.put_state(record.id, put("x", b"1"), Some(lease)).await.unwrap();
    store.remove(record.id, Some(lease)).await.unwrap();
    admin.batch_execute(&format!("drop owned by {role}; drop role {role}")).await.unwrap();
    match store.load(record.id).await {
        Err(error @ StoreError::Corrupt { .. }) => assert_eq!(error.retry(), Retry::Never),
        other => panic!("the role may not read any more: {other:?}"),
    }
}

/// The longest names fit every index, even if they cannot be compressed.
#[tokio::test]
async fn longest_names_are_stored() {
    let at = PostgresUrl::empty();
    let store = open(&at.url).await.store;
    let mut seed = 1u64;
    let mut noise = |bytes: usize| -> String {
        let mut letter = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + u8::try_from((seed >> 33) % 94).unwrap())
        };
        (0..bytes).map(|_| letter()).collect()
    };
    let owner = Owner::verified(&"#".repeat(512), &noise(512)).unwrap();
    let record = Record::new(owner.clone(), Expiry::idle(Duration::MAX), NOW)
        .with_key(Agent::named(&noise(128)).unwrap(), Key::named(&noise(251)).unwrap());
    store.insert(&record, None).await.unwrap();
    let key = record.key.clone().unwrap();
    let found = store.find_by_key(&owner, &record.agent, &key).await.unwrap();
    assert_eq!(found.unwrap().id, record.id);
    assert_eq!(store.list(Some(&owner), None, 9).await.unwrap().len(), 1);
    // A sum above the latest time is the latest time.
    store.touch(&[(record.id, Timestamp::MAX)], None).await.unwrap();
    assert_eq!(store.list_due(Timestamp::MAX, None, 9).await.unwrap().len(), 1);
    let limits = StateLimits { key: 1 << 20, ..StateLimits::default() };
    for name in [noise(100_000), "nul \0 too".to_owned()] {
        let put = StateWrite { limits, ..put(&name, b"1") };
        store.put_state(record.id, put, None).await.unwrap();
        let value = store.load_state(record.id, &name).await.unwrap();
        assert_eq!(value.unwrap().bytes, b"1");
    }
}
