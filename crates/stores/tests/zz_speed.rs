#![allow(clippy::all)]
use stayput_core::*;
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speed() {
    let url = std::env::var("SPEED").unwrap();
    let s = stayput_stores::open(&url).await.unwrap().store;
    let now = Timestamp::from_millis(1_800_000_000_000);
    let r = Record::new(Owner::local(), Expiry::default(), now)
        .keyed(Agent::none(), Key::named("k").unwrap());
    s.insert(&r).await.unwrap();
    let n = 5000u32;
    macro_rules! t {
        ($name:literal, $e:expr) => {{
            let t = std::time::Instant::now();
            for _ in 0..n {
                $e;
            }
            println!("{:<10} {:?}", $name, t.elapsed() / n);
        }};
    }
    let bytes = vec![7u8; 1000];
    t!("load", s.load(r.id).await.unwrap());
    t!(
        "put",
        s.put_state(
            r.id,
            Put { key: "x", bytes: &bytes, expect: Expect::Any, limits: StateLimits::default() },
            None
        )
        .await
        .unwrap()
    );
    t!("state", s.state(r.id, "x").await.unwrap());
    t!("touch", s.touch(&[(r.id, now)], None).await.unwrap());
    t!("find", s.find(&r.owner, &r.agent, r.key.as_ref().unwrap()).await.unwrap());
    let mut cur = r.clone();
    t!("replace", {
        cur.revision = s.replace(&cur, Seen::revision(&cur), None).await.unwrap();
    });
    t!("ins+rem", {
        let r = Record::new(Owner::local(), Expiry::default(), now)
            .keyed(Agent::none(), Key::named("z").unwrap());
        s.insert(&r).await.unwrap();
        s.remove(r.id, None).await.unwrap();
    });
    let t = std::time::Instant::now();
    let mut hs = vec![];
    for _ in 0..64 {
        let s = s.clone();
        let id = r.id;
        hs.push(tokio::spawn(async move {
            for _ in 0..1000 {
                s.load(id).await.unwrap();
            }
        }));
    }
    for h in hs {
        h.await.unwrap();
    }
    println!("64 tasks load {:?}/op", t.elapsed() / 64000);
}
