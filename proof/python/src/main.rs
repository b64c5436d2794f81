//! The Python package: its wheel is built, installed into an environment of its own and tested.
//!
//! pytest runs the tests of `crates/py/tests`. DuckDB, Polars, pandas, PyArrow and Jupyter judge what
//! the wheel gives them, by what the program `lastwords` writes of the same inputs. A second
//! environment has nothing but the wheel, as after `pip install` of the file alone.
//!
//! The package has a workspace of its own, which nothing else builds.
//!
//! With `--fleet`, workers of Spark ingest made crashes instead, and Spark SQL and DuckDB answer the
//! same questions. With `--pools`, workers of Dask and of Ray do, by the code of the book. With
//! `--suite`, the wheel is installed and used in a clean Debian.
#![forbid(unsafe_code)]

mod suites;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

/// Build the wheel of the Python package, and test it
#[derive(Parser)]
#[command(bin_name = "cargo xtask python")]
struct Args {
    /// The program `lastwords`; by default that of the tests, which is built
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// The Python that makes the environments
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Let workers of Spark ingest this many made crashes, instead of running pytest
    #[arg(long, value_name = "CRASHES")]
    fleet: Option<u64>,
    /// The numbers of workers, a cluster for each; one worker is killed in those with `x`
    #[arg(long, value_name = "N", num_args = 1.., default_values = ["1", "2", "4", "2x"])]
    workers: Vec<String>,
    /// Let workers of Dask and of Ray ingest this many made crashes, instead of running pytest
    #[arg(long, value_name = "CRASHES", conflicts_with = "fleet")]
    pools: Option<u64>,
    /// Install and use the wheel in a clean Debian of this suite, instead of running pytest
    #[arg(long, value_name = "NAME", conflicts_with_all = ["fleet", "pools"])]
    suite: Vec<String>,
    /// Arguments of pytest, such as `-k sql`
    #[arg(last = true)]
    pytest: Vec<String>,
}

/// The packages that build and test the wheel, in fixed versions.
const REQUIREMENTS: &str = include_str!("../requirements.txt");

/// Spark and DuckDB, in fixed versions. Spark comes as a source package of jars.
const SPARK: &str = "\
--no-binary pyspark
duckdb==2.0.1
py4j==0.10.9.9
pyspark==4.3.0
pytest==9.2.0
";

/// Dask, Ray and DuckDB, in fixed versions.
const POOLS: &str = include_str!("../pools.txt");

/// The judges of data sets that workers make: programs in Python, and what they share.
const FLEET_JUDGE: (&str, &str) = ("fleet.py", include_str!("fleet.py"));
const POOLS_JUDGE: (&str, &str) = ("pools.py", include_str!("pools.py"));
const SAME: (&str, &str) = ("same.py", include_str!("same.py"));

/// Uses the wheel without any other package.
const ALONE: &str = "
import sys, lastwords
rows = list(lastwords.open(sys.argv[1]).events())
assert rows and rows[0]['ts'], rows
try:
    lastwords.open('/nowhere')
except lastwords.OpenError as error:
    assert 'nowhere' in str(error)
";

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let lastwords = match &args.lastwords {
        Some(lastwords) => lastwords.canonicalize().context("--lastwords")?,
        None => rig::programs::tested()?,
    };
    let folder = rig::programs::target()?.join("python");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let tests = Environment::with_requirements(&folder.join("tests"), &args.python, REQUIREMENTS)?;
    let begin = Instant::now();
    let wheel = build(&tests, &folder)?;
    let seconds = begin.elapsed().as_secs();
    let size = wheel.metadata().context("the wheel")?.len();
    println!("{}: {size} bytes, built in {seconds} s", wheel.display());
    if let Some(crashes) = args.fleet {
        return fleet(args, &folder, &wheel, &lastwords, crashes);
    }
    if let Some(crashes) = args.pools {
        return pools(args, &folder, &wheel, &lastwords, crashes);
    }
    if !args.suite.is_empty() {
        return args.suite.iter().try_for_each(|suite| suites::run(suite, &tests, &folder, &wheel));
    }
    tests.install(&wheel)?;
    alone(&folder, &args.python, &wheel)?;
    let mut pytest = tests.command("python");
    pytest.current_dir(rig::root().join("crates/py"));
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).args(&args.pytest);
    pytest.env("LASTWORDS", lastwords).env("PYTHONDONTWRITEBYTECODE", "1");
    let cases = rig::beside().join("cases");
    if cases.is_dir() {
        pytest.env("LASTWORDS_CASES", cases);
    } else {
        println!("no cases beside the repository: what needs them is not tested");
    }
    let status = pytest.status().with_context(|| rig::shown(&pytest))?;
    ensure!(status.success(), "pytest: {status}");
    Ok(())
}

/// Lets workers of Spark ingest made crashes, and compares what Spark and DuckDB answer.
fn fleet(args: &Args, folder: &Path, wheel: &Path, lastwords: &Path, crashes: u64) -> Result<()> {
    let mut java = Command::new("java");
    rig::run_quietly(java.arg("-version")).context("Spark needs Java: default-jre-headless")?;
    let spark = Environment::with_requirements(&folder.join("spark"), &args.python, SPARK)?;
    spark.install(wheel)?;
    let made = Made::new(folder.join("fleet"), lastwords, crashes)?;
    let mut python = made.judge(&spark, FLEET_JUDGE)?;
    python.arg(lastwords).arg(made.inputs()).arg(made.place.join("made-fleet/truth.csv"));
    python.arg(&made.place).args(&args.workers);
    made.finish(python)
}

/// Lets workers of Dask and of Ray ingest made crashes, by the code of the book's page.
fn pools(args: &Args, folder: &Path, wheel: &Path, lastwords: &Path, crashes: u64) -> Result<()> {
    let environment = Environment::with_requirements(&folder.join("pools"), &args.python, POOLS)?;
    environment.install(wheel)?;
    let made = Made::new(folder.join("pools-fleet"), lastwords, crashes)?;
    let mut python = made.judge(&environment, POOLS_JUDGE)?;
    python.arg(lastwords).arg(made.inputs());
    python.arg(rig::root().join("book/src/recovering/dask-ray.md")).arg(&made.place);
    // Ray writes into the home folder.
    python.env("HOME", &made.place).env("RAY_USAGE_STATS_ENABLED", "0");
    made.finish(python)
}

/// A folder with made crashes.
struct Made {
    place: PathBuf,
}

impl Made {
    fn new(place: PathBuf, lastwords: &Path, crashes: u64) -> Result<Self> {
        rig::make_empty(&place)?;
        let made = Self { place };
        let mut make = Command::new(rig::programs::rig("tables")?);
        make.arg("--make-fleet").arg(made.place.join("made-fleet"));
        make.args(["--fleet", &crashes.to_string()]).arg("--program").arg(lastwords);
        print!("{}", rig::run_quietly(&mut make)?);
        Ok(made)
    }

    fn inputs(&self) -> PathBuf {
        self.place.join("made-fleet/inputs")
    }

    /// Returns a judge as a command of an environment.
    fn judge(&self, environment: &Environment, judge: (&str, &str)) -> Result<Command> {
        for (name, text) in [judge, SAME] {
            std::fs::write(self.place.join(name), text).with_context(|| name.to_owned())?;
        }
        let mut python = environment.command("python");
        python.arg(self.place.join(judge.0));
        // One of the data sets is that of the tests.
        python.env("PYTHONPATH", rig::root().join("crates/py/tests"));
        python.env("PYTHONDONTWRITEBYTECODE", "1");
        Ok(python)
    }

    /// Runs a judge, and removes the folder if it finds no fault.
    fn finish(self, mut judge: Command) -> Result<()> {
        let status = judge.status().with_context(|| rig::shown(&judge))?;
        ensure!(status.success(), "{}: {status}", rig::shown(&judge));
        Ok(std::fs::remove_dir_all(self.place)?)
    }
}

/// Builds the wheel in a target of its own. Returns the file.
fn build(tests: &Environment, folder: &Path) -> Result<PathBuf> {
    let wheels = folder.join("wheels");
    rig::make_empty(&wheels)?;
    let mut maturin = tests.command("maturin");
    maturin.args(["build", "--release", "--locked", "--manifest-path"]);
    maturin.arg(rig::root().join("crates/py/Cargo.toml")).arg("--out").arg(&wheels);
    rig::run_quietly(maturin.env("CARGO_TARGET_DIR", folder.join("build")))?;
    let mut files = wheels.read_dir().context("the wheels")?;
    let wheel = files.next().context("maturin has made no wheel")??.path();
    ensure!(files.next().is_none(), "maturin has made several wheels");
    Ok(wheel)
}

/// Uses the wheel in an environment that has nothing else.
fn alone(folder: &Path, python: &str, wheel: &Path) -> Result<()> {
    let place = folder.join("alone");
    rig::make_empty(&place)?;
    let alone = Environment::make(&place, python)?;
    alone.install(wheel)?;
    let sessions = place.join("sessions");
    stored_sessions(&sessions)?;
    rig::run_quietly(alone.command("python").args(["-c", ALONE]).arg(&sessions))?;
    let output = alone.command("lastwords-sql").arg("x").output().context("lastwords-sql")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("pip install"),
        "lastwords-sql without DuckDB: {}: {said}",
        output.status
    );
    Ok(())
}

/// Unpacks the stored sessions into a new folder.
fn stored_sessions(sessions: &Path) -> Result<()> {
    let stored = rig::root().join("crates/cli/tests/stored-0.1/sessions.tar.zst");
    std::fs::create_dir(sessions).context("sessions")?;
    let mut tar = Command::new("tar");
    rig::run_quietly(tar.arg("--zstd").arg("-xf").arg(stored).arg("-C").arg(sessions)).map(drop)
}

/// A virtual environment of Python.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    fn make(folder: &Path, python: &str) -> Result<Self> {
        let mut venv = Command::new(python);
        rig::run_quietly(venv.args(["-m", "venv"]).arg(folder))
            .context("an environment of Python cannot be made (package python3-venv)")?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Makes an environment with packages, unless it is there.
    fn with_requirements(folder: &Path, python: &str, requirements: &str) -> Result<Self> {
        let list = folder.join("requirements.txt");
        if std::fs::read_to_string(&list).is_ok_and(|text| text == requirements) {
            return Ok(Self { folder: folder.to_owned() });
        }
        rig::make_empty(folder)?;
        let made = Self::make(folder, python)?;
        let partial = folder.join("requirements.partial");
        std::fs::write(&partial, requirements).context("requirements")?;
        let mut pip = made.pip();
        rig::run_quietly(pip.args(["--only-binary=:all:", "-r"]).arg(&partial))?;
        std::fs::rename(partial, list).context("requirements")?;
        Ok(made)
    }

    /// Returns a program of the environment.
    fn command(&self, program: &str) -> Command {
        let bin = self.folder.join("bin");
        let mut command = Command::new(bin.join(program));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", bin.display()));
        command
    }

    fn pip(&self) -> Command {
        let mut pip = self.command("python");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip
    }

    /// Installs a wheel, and nothing that it could use.
    fn install(&self, wheel: &Path) -> Result<()> {
        rig::run_quietly(self.pip().args(["--force-reinstall", "--no-deps"]).arg(wheel)).map(drop)
    }
}
