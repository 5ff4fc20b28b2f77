//! Foreign data at a lock's key is not changed, and the error says how to remove it.

use std::process::Command;

use lock_testkit::servers::{PostgresServer, RedisOptions, RedisServer, ZooKeeperServer};

use super::schema::Database;
use crate::fixture::{Ended, LOCKCTL, Place, side_by_side};

/// Each way to acquire is refused with 65, says this, and no name of a script.
#[track_caller]
fn assert_refused(place: &Place, backend: &str, says: &[&str]) {
    for command in ["-n k", "-w 1s k", "-n --shared k", "-n a k"] {
        let line = format!("--backend {backend} run {command} -- touch ran");
        let ended = place.expect(65, &line).says(says);
        ended.says_nothing_of(&["script", "internal"]);
    }
    place.assert_not_run();
}

#[track_caller]
fn try_to_run(place: &Place, backend: &str, code: i32) -> Ended {
    place.expect(code, &format!("--backend {backend} run -n k -- true"))
}

/// Runs the command of the error message verbatim.
#[track_caller]
fn run_line(ended: &Ended, begins: &str) {
    let line = ended
        .stderr
        .split_once(begins)
        .and_then(|(_, rest)| rest.lines().next());
    let line = line.unwrap_or_else(|| panic!("no line of {begins}: {ended}"));
    // The key of the lock stands behind the message.
    let line = line.split(" (key ").next().expect("a part");
    let output = Command::new("sh")
        .args(["-c", &format!("{begins}{line}")])
        .output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{begins}{line}: {output:?}");
}

fn redis_cli(server: &RedisServer, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port().to_string()]).args(args);
    let output = command.output().expect("redis-cli");
    assert!(output.status.success(), "{args:?}: {output:?}");
    output.stdout
}

#[test]
fn keys_of_other_types_on_redis_are_named() {
    let server = RedisServer::start(RedisOptions::new());
    let url = server.url();
    let place = Place::new();
    let redis = |args: &[&str]| redis_cli(&server, args);
    for (write, what, key) in [
        ("RPUSH lock:k a", "a list", "lock:k"),
        ("HSET lock:k a b", "a hash", "lock:k"),
        ("ZADD lock:k 1 a", "a sorted set", "lock:k"),
        ("XADD lock:k * a b", "a stream", "lock:k"),
        ("SADD {lock}:tokens a", "a set", "{lock}:tokens"),
    ] {
        // Leftovers of the run before.
        redis(&["DEL", "{lock}:tokens"]);
        redis(&write.split(' ').collect::<Vec<_>>());
        let before = redis(&["DUMP", key]);
        let remove = format!("redis-cli -h 127.0.0.1 -p {} UNLINK '{key}'", server.port());
        let has = format!("has {what} at \"{key}\"");
        assert_refused(&place, &url, &[&has, &remove, "left as it is"]);
        let queries = ["inspect k", "break --yes k"];
        for query in queries.iter().filter(|_| key == "lock:k") {
            let ended = place.expect(65, &format!("--backend {url} {query}"));
            ended.says(&[&has, "(key \"k\")"]);
        }
        assert_eq!(redis(&["DUMP", key]), before, "{what} is changed");
        run_line(&try_to_run(&place, &url, 65), "redis-cli");
        try_to_run(&place, &url, 0);
    }
}

/// Its holders are known by what they store alone, which has the form of an id here, as that of redis-py.
#[test]
fn break_asks_again_about_another_holder_of_another_library() {
    let (server, place) = (RedisServer::start(RedisOptions::new()), Place::new());
    let [first, second] = ["a", "b"].map(|digit| digit.repeat(32));
    let set = |value: &str| {
        redis_cli(&server, &["SET", "lock:k", value, "NX", "PX", "60000"]);
    };
    set(&first);
    let mut asked = place.terminal(&format!("{LOCKCTL} --backend {} break k", server.url()));
    asked.until_asked(1);
    redis_cli(&server, &["DEL", "lock:k"]);
    set(&second);
    asked.enter("y\n");
    asked.until_asked(2);
    let held = redis_cli(&server, &["GET", "lock:k"]);
    assert_eq!(
        String::from_utf8_lossy(&held).trim(),
        second,
        "it is broken"
    );
    asked.enter("n\n");
    let ended = asked.expect(1).prints(&["note \"other client, "]);
    ended.says_nothing_of(&[&first, &second]);
}

#[test]
fn the_command_for_redis_has_the_database() {
    let server = RedisServer::start(RedisOptions::new());
    redis_cli(&server, &["-n", "2", "LPUSH", "it's", "a"]);
    let place = Place::new();
    let url = format!("redis://127.0.0.1:{}/2?namespace=", server.port());
    let line = ["--backend", &url, "run", "-n", "it's", "--", "true"];
    run_line(&place.expect(65, &line), "redis-cli");
    place.expect(0, &line);
}

#[test]
fn tables_of_other_programs_in_sqlite_are_named() {
    let place = Place::new();
    let sql = |text: &str| {
        let script = "import sqlite3, sys\nc = sqlite3.connect('other.db')\n\
                      print(c.execute(sys.argv[1]).fetchall())\nc.commit()";
        place.program("python3", &["-c", script, text]).expect(0)
    };
    sql("CREATE TABLE polylock_locks (name TEXT, price INT)");
    sql("INSERT INTO polylock_locks VALUES ('bread', 3)");
    let says = [
        "the table polylock_locks has the columns name, price",
        "table=NAME",
        "/other.db\" 'DROP TABLE polylock_locks'",
    ];
    assert_refused(&place, "sqlite:other.db", &says);
    sql("SELECT * FROM polylock_locks").prints_only("[('bread', 3)]\n");
    let other = "sqlite:other.db?table=locks";
    try_to_run(&place, other, 0);
    sql("UPDATE locks SET id = X'00', expires_boot = 9000000000000000000 WHERE key = X'6B'");
    let remove = "DELETE FROM locks WHERE CAST(key AS TEXT) = 'k'";
    assert_refused(
        &place,
        other,
        &["a row that polylock has not written", remove],
    );
    sql(remove);
    try_to_run(&place, other, 0);
}

#[test]
fn tables_of_other_programs_in_databases_are_named() {
    let cases: Vec<_> = ["row", "lease", "advisory"]
        .into_iter()
        .flat_map(|mode| Database::of_each_server().map(|database| (mode, database)))
        .collect();
    side_by_side(&cases, |(mode, database)| {
        let place = Place::new();
        let url = format!("{}?mode={mode}", database.url);
        database.sql("CREATE TABLE polylock_locks (name text, price int)");
        let remove = match database.is_postgres() {
            true => "DROP TABLE \"public\".\"polylock_locks\"",
            false => "DROP TABLE `polylock_locks`",
        };
        let says = ["has the columns name, price", " of ", remove];
        assert_refused(&place, &url, &says);
        database.sql(remove);
        try_to_run(&place, &url, 0);
    });
}

#[test]
fn rows_of_other_programs_in_postgres_are_named() {
    let place = Place::new();
    let server = PostgresServer::shared();
    let database = server.database();
    let url = format!("{database}?mode=lease");
    try_to_run(&place, &url, 0);
    let foreign = "UPDATE polylock_locks SET last_token = -1, id = NULL WHERE kind = 1";
    server.sql(&database, foreign);
    let remove = "DELETE FROM polylock_locks WHERE kind = 1 AND lock_key = 'k'";
    try_to_run(&place, &url, 65).says(&[remove]);
    server.sql(&database, remove);
    try_to_run(&place, &url, 0);
}

#[test]
fn ephemeral_nodes_of_other_programs_are_named() {
    let server = ZooKeeperServer::shared();
    let root = format!("/lockctl-foreign-{}", std::process::id());
    let url = format!("{}{root}", server.url());
    let place = Place::new();
    place.expect(0, &format!("--backend {url} run -n other -- true"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _session = runtime.block_on(async {
        use zookeeper_client::{Acls, Client, CreateMode};
        let client = Client::connect(&server.address()).await.expect("a session");
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let path = format!("{root}/k");
        let node = client.create(&path, b"data", &ephemeral);
        node.await.expect("a node");
        client
    });
    let says = format!("{root}/k is an ephemeral node with 4 bytes of data, which session 0x");
    let remove = format!(" delete {root}/k");
    assert_refused(&place, &url, &[&says, "zkCli.sh -server ", &remove]);
}
