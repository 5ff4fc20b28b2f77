use futures_util::join;
use zookeeper_client::Error as ClientError;

use crate::error::Failure;
use crate::node::Node;
use crate::recipe::directory::Directory;
use crate::recipe::names::Contender;
use crate::session::Session;

/// Looks for the node of a contender, whose name begins with one of the stems, as the ensemble has it
/// now.
///
/// The requests of a session are carried out in their order, so this comes after the request that
/// may have created the node, and a server that is behind is brought up to date first.
pub(crate) async fn find(
    session: &Session,
    directory: &Directory,
    stems: &[String],
) -> Result<Option<Node>, Failure> {
    let client = &session.client;
    let synced = client.sync(directory.path());
    let listed = client.list_children(directory.path());
    let (synced, listed) = join!(synced, listed);
    // A list that no sync came before may be old, also if it says that nothing is there.
    synced?;
    let names = match listed {
        Err(ClientError::NoNode) => return Ok(None),
        listed => listed?,
    };
    let is_it = |name: &&String| stems.iter().any(|stem| name.starts_with(stem));
    let Some(name) = names.iter().find(is_it) else {
        return Ok(None);
    };
    let contender = Contender::parse(name);
    let contender = contender.ok_or_else(|| Failure::misnamed(name))?;
    let path = directory.child(name);
    let Some(stat) = client.check_stat(&path).await? else {
        return Ok(None);
    };
    if !session.owns(&stat) {
        // The client has another session than it knows of; nothing can be said of this one. The other
        // may last, and the node with it: the request to delete it leaves here.
        drop(client.delete(&path, None));
        session.end();
        return Err(ClientError::SessionExpired.into());
    }
    let czxid = stat.czxid;
    Ok(Some(Node { contender, czxid }))
}
