use std::fmt;

/// How the nodes of a lock are named: as another client names them, so that both take turns.
///
/// All contenders of a lock must use the same one. Whatever is chosen, one key is one directory under
/// the root, and one contender is one ephemeral sequential node in it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Compat {
    /// `_c_<uuid>-lock-<sequence>`: exclusive locks exclude the `InterProcessMutex` of Apache Curator.
    #[default]
    Curator,
    /// `_c_<uuid>-__WRIT__<sequence>` and `-__READ__`: the `InterProcessReadWriteLock` of Apache
    /// Curator.
    CuratorReadWrite,
    /// `<32 hex digits>__lock__<sequence>` and `__rlock__`: the `Lock`, `WriteLock` and `ReadLock` of
    /// Kazoo. Its `Lock` does not see shared locks; its `WriteLock` does.
    ///
    /// Directories stay when they are unused: a `Lock` of Kazoo ensures its directory once, and
    /// fails with `NoNodeError` if the server removes it later. With the other names ZooKeeper
    /// removes them.
    Kazoo,
}

/// The clients that may read and change the nodes of locks, apart from ZooKeeper's superuser.
///
/// It is the access control list of the nodes that this client creates; it changes none that exist.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Access {
    /// Clients with the identity that created the node. The default with a login or a certificate.
    Creator,
    /// The same, and everybody may read: list and watch locks, and not take or break them.
    CreatorAndReaders,
    /// Everybody may do everything. The default without a login.
    Everybody,
}

/// The identity of this client.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Login {
    pub(crate) auth: Auth,
    pub(crate) username: String,
    pub(crate) password: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Auth {
    /// Any user and password are an identity; a server compares, and has no list of them.
    Digest,
    /// SASL with DIGEST-MD5: the server has a list of users.
    Sasl,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("auth", &self.auth)
            .field("username", &self.username)
            .field("password", &"***")
            .finish()
    }
}
