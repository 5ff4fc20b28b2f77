use super::jute::Fields;

/// The words of the first request of a connection; none if it is something else.
pub(super) fn connect_args(fields: &mut Fields<'_>) -> Option<Vec<Vec<u8>>> {
    let (version, _last_zxid, _timeout) = (fields.int()?, fields.long()?, fields.int()?);
    let (session, _password) = (fields.long()?, fields.bytes()?);
    (version == 0).then(|| {
        let session = format!("{session:#x}").into_bytes();
        vec![b"CONNECT".to_vec(), Vec::new(), session]
    })
}

/// The words of any other request: its name, its path, and what is useful to know of the rest.
pub(super) fn args(operation: i32, fields: &mut Fields<'_>) -> Vec<Vec<u8>> {
    let name = name(operation);
    let name_word = name.map_or_else(|| format!("OP{operation}"), str::to_owned);
    let mut args = vec![name_word.into_bytes(), Vec::new()];
    // The first of several operations stands for all.
    let first = match name {
        Some("MULTI") => first_of_several(fields),
        _ => Some(operation),
    };
    let Some(first) = first.filter(|first| HAVE_PATH.contains(first)) else {
        return args;
    };
    let Some(path) = fields.bytes() else {
        return args;
    };
    args[1] = path.to_vec();
    match name {
        Some("CREATE") => args.extend(flags(fields).map(|flags| flags.to_string().into_bytes())),
        Some("EXISTS" | "GETCHILDREN" | "GETDATA") => {
            let watch = fields.byte().is_some_and(|watch| watch != 0);
            args.push(if watch { b"watch".to_vec() } else { Vec::new() });
        }
        Some("MULTI") => args.extend(self::name(first).map(|name| name.as_bytes().to_vec())),
        _ => {}
    }
    args
}

/// Each operation has a header of its own.
fn first_of_several(fields: &mut Fields<'_>) -> Option<i32> {
    let (operation, _is_end, _error) = (fields.int()?, fields.byte()?, fields.int()?);
    Some(operation)
}

/// What is behind the data and the access list of a node.
fn flags(fields: &mut Fields<'_>) -> Option<i32> {
    fields.bytes()?;
    for _ in 0..fields.int()? {
        let (_permissions, _scheme, _id) = (fields.int()?, fields.bytes()?, fields.bytes()?);
    }
    fields.int()
}

fn name(operation: i32) -> Option<&'static str> {
    Some(match operation {
        -11 => "CLOSE",
        // Four ways: with and without what it made as an answer, a container, one with a ttl.
        1 | 15 | 19 | 21 => "CREATE",
        2 => "DELETE",
        3 => "EXISTS",
        4 => "GETDATA",
        5 => "SETDATA",
        8 | 12 => "GETCHILDREN",
        9 => "SYNC",
        11 => "PING",
        13 => "CHECK",
        14 => "MULTI",
        18 => "REMOVEWATCHES",
        100 => "AUTH",
        101 | 105 => "SETWATCHES",
        102 => "SASL",
        106 => "ADDWATCH",
        _ => return None,
    })
}

/// The operations that begin with a path, also those without a name here: `getACL` (6), `setACL`
/// (7), `checkWatches` (17), `getEphemerals` (103) and `getAllChildrenNumber` (104).
const HAVE_PATH: [i32; 19] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 17, 18, 19, 21, 103, 104, 106,
];
