//! Names of errors, and values of enumerators that formats use by name only.

/// Names of the errors 1 to 133 of most machines, in order; two numbers are not used.
const ERRORS: &str = "EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY \
    EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE \
    EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP - ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI \
    EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT - EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV \
    ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC \
    EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT \
    EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET \
    ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE \
    EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED \
    EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON";

/// Returns the name of an error.
pub(crate) fn errno(code: u32) -> Option<&'static str> {
    let index = usize::try_from(code.checked_sub(1)?).ok()?;
    ERRORS.split_ascii_whitespace().nth(index).filter(|name| *name != "-")
}

/// Returns the value of an enumerator that formats of many kernels use by name. These values are
/// part of interfaces or have never changed (`include/linux/hrtimer.h`,
/// `include/net/tcp_states.h`).
pub(crate) fn enumerator(name: &str) -> Option<i64> {
    if let Some(mode) = name.strip_prefix("HRTIMER_MODE_") {
        return hrtimer_mode(mode);
    }
    const TCP: [&str; 12] = [
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "NEW_SYN_RECV",
    ];
    let state = name.strip_prefix("TCP_")?;
    (1i64..).zip(TCP).find(|(_, known)| *known == state).map(|(number, _)| number)
}

/// Returns the value of an hrtimer mode: `ABS` is 0 and `REL` is 1; `PINNED`, `SOFT` and `HARD` are
/// bits.
fn hrtimer_mode(words: &str) -> Option<i64> {
    words.split('_').try_fold(0, |sum, word| {
        let bit = match word {
            "ABS" => 0,
            "REL" => 1,
            "PINNED" => 2,
            "SOFT" => 4,
            "HARD" => 8,
            _ => return None,
        };
        Some(sum | bit)
    })
}
