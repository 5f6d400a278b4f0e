# SPDX-License-Identifier: Apache-2.0
"""A sweep: weak settings stop early, finished jobs are kept, and where jobs run changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase.cli import main
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import Figures
from hardcase_edge.more.fronts.front import Judged
from hardcase_train.data.split import N_BLOCKS
from hardcase_train.method import Setting
from hardcase_train.methods import METHODS
from hardcase_train.methods.adapt.stages import FINER
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.effort import EFFORTS, NORMAL
from hardcase_train.sweep import executors, halving, job_cache, loop, sweep
from hardcase_train.sweep import halving as ladder
from hardcase_train.sweep import sweep as auto
from hardcase_train.sweep.executors import code_digest, open_pool
from hardcase_train.sweep.halving import Job, Ladder, climbers, run_job, savings, settings_of
from hardcase_train.sweep.job_cache import JobCache
from hardcase_train.sweep.sweep import chosen_methods
from hardcase_train.sweep.train import hpc_point, learn
from tests.helpers.places import ROOT
from tests.helpers.train.problems import BRIEF, LEAST, make_problem, plain, ran, run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")


@pytest.fixture(scope="module", autouse=True)
def _all_threads():
    """Sweeps have them here, however small their tables are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "MANY_ROWS", 0)
        yield


HPC = Figures(0.9, 100.0, 1.0)
ALWAYS = ("cascade", "dag", "route", "adapt-gbrt", "static")


def point(cost, quality):
    return Point("m", {}, Judged(quality, cost, 0.0), None, None)


# ---------------------------------------------------------------- successive halving


def test_savings_are_read_off_at_each_loss():
    found = savings([point(10, 0.9), point(1, 0.85)], 0.9, 100.0)
    cheap = [np.log(10) if loss < 0.05 else np.log(100) for loss in halving.LOSSES]
    assert found == pytest.approx(cheap)
    assert savings([point(500, 0.9), point(1, 0.5)], 0.9, 100.0).tolist() == [0.0] * len(halving.LOSSES)
    assert savings([point(0, 0.9)], 0.9, 100.0).max() == pytest.approx(np.log(1000))  # cheaper counts no more
    assert savings([point(0, 0.9)], 0.9, 0.0).tolist() == [0.0] * len(halving.LOSSES)  # nothing to save


def test_what_climbs_is_what_adds_to_the_others_not_what_is_good_alone():
    best, twin, cheap, useless = [point(10, 0.9)], [point(10.1, 0.9)], [point(2, 0.86)], [point(90, 0.85)]
    assert climbers([best, twin, cheap, useless], HPC) == [0, 2]
    assert climbers([useless, twin, best, cheap, []], HPC) == [2, 3]  # half is three, but none adds anything
    assert climbers([twin, best, twin, twin, twin], HPC) == [0, 1]  # a quarter at least


@given(st.lists(st.lists(st.tuples(st.floats(0, 200), st.floats(0.5, 1)), max_size=4), min_size=1, max_size=9))
def test_at_most_half_of_the_settings_are_kept_and_the_best_at_some_loss_is_among_them(figures):
    found = [[point(*f) for f in points] for points in figures]
    kept = climbers(found, HPC)
    assert (len(found) + 3) // 4 <= len(kept) <= (len(found) + 1) // 2
    assert kept == sorted(set(kept))
    level = min([0.9, max((f[1] for points in figures for f in points), default=0.9)])
    alone = [savings(points, level, 100.0).sum() for points in found]
    assert max(alone[k] for k in kept) == max(alone)


def test_a_rung_has_every_class_its_share_of_rows_and_never_a_test_row():
    problem = make_problem(3, n=200)
    low = Ladder(problem).at(4)
    assert len(low.problem.test.y) == len(Ladder(problem).at(1).problem.test.y) == 0
    assert np.bincount(low.problem.train.y) == pytest.approx(np.bincount(problem.train.y) / 4, abs=1)
    assert set(low.problem.train.index) < set(problem.train.index)
    assert Ladder(problem).at(4).problem.train.index.tolist() == low.problem.train.index.tolist()
    assert all(p.program is None for p in run_job(Ladder(problem), Job(Setting("greedy-miser", {"gamma": 0.1}), 4)))


def test_a_rung_of_a_stream_has_runs_of_neighbours():
    n = 4 * N_BLOCKS * 10  # on a rung of 4, blocks of ten rows
    problem = make_problem(3, n=n)
    train = replace(problem.train, sequence=np.zeros(n, dtype=np.int64))
    index = Ladder(replace(problem, train=train)).at(4).problem.train.index
    assert len(index) == pytest.approx(n / 4, abs=10)
    assert set(np.bincount(index // 10)) == {0, 10}


@pytest.fixture
def halved(monkeypatch):
    """Halving on few rows; the jobs that were run."""
    monkeypatch.setattr(sweep, "MIN_ROWS", 100)
    jobs = []
    monkeypatch.setattr(loop, "run_job", lambda *args: (jobs.append(args[1]), run_job(*args))[1])
    return jobs


def test_only_the_climbers_is_trained_on_all_rows_and_the_front_keeps_its_points(monkeypatch, halved):
    problem = make_problem(n=240, effort=replace(NORMAL, n_gammas=5))
    points = learn(problem, ("greedy-miser",), quiet=True, jobs=1)[1:]
    assert [job.rung for job in halved] == [sweep.RUNG] * (5 + FINER) + [1] * 3
    assert all(p.program is not None and p.test for p in points)
    trained = [job.setting.params["gamma"] for job in halved if job.rung == 1]
    monkeypatch.setattr(sweep, "MIN_ROWS", 1000)
    whole = learn(problem, ("greedy-miser",), quiet=True, jobs=1)[1:]
    kept = [p for p in whole if p.params["gamma"] in trained]
    assert kept
    assert all(p in plain(points) for p in plain(kept))
    for p in points:  # another gamma, tried on all rows alone, may be as cheap and better
        assert any(q.valid.cost <= p.valid.cost and q.valid.quality >= p.valid.quality for q in whole)
    everything = Judge(problem)
    f0 = hpc_point(everything).valid
    lost = savings(whole, f0.quality, f0.cost) - savings(points, f0.quality, f0.cost)
    assert lost.mean() < 0.1


# ---------------------------------------------------------------- auto


@pytest.mark.parametrize("name", ["l1", "cstc"])
def test_auto_takes_a_method_that_makes_the_front_cheaper_and_leaves_one_that_does_not(name):
    problem = make_problem(n=60)
    good, poor = [point(0.1, 1.0)], [point(90.0, 0.2)]

    def race(jobs, title):
        return [good if job.setting.method == name else poor for job in jobs]

    assert chosen_methods(Ladder(problem), HPC, race) == (*ALWAYS, name)
    assert chosen_methods(Ladder(problem), HPC, lambda jobs, _: [poor for _ in jobs]) == ALWAYS
    assert chosen_methods(Ladder(problem), HPC, lambda jobs, _: [good for _ in jobs]) == ALWAYS
    assert chosen_methods(Ladder(problem), HPC, lambda jobs, _: [[] for _ in jobs]) == ALWAYS
    always = {name for name, cls in METHODS.items() if cls.method.auto == "always"}
    assert always - set(ALWAYS) == {name for name, cls in METHODS.items() if cls.method.needs_order}


def test_with_little_effort_auto_runs_no_race():
    ladder = Ladder(make_problem(n=60, effort=BRIEF))
    assert chosen_methods(ladder, HPC, lambda jobs, _: pytest.fail("a race was run")) == ALWAYS


def test_auto_races_few_rows_of_each_method_and_never_judges_by_test_rows(monkeypatch):
    monkeypatch.setattr(auto, "RACE_ROWS", 60)
    problem = make_problem(n=120, effort=replace(LEAST, races=True))
    seen = []

    def race(jobs, title):
        seen.extend(jobs)
        return [[point(50.0, 0.9)] for _ in jobs]

    chosen_methods(Ladder(problem), HPC, race)
    assert {job.setting.method for job in seen} == {*ALWAYS, "adapt-lin", "budget-prune", "cstc", "greedy-miser", "l1"}
    named = {name for name, cls in METHODS.items() if cls.method.auto == "named"}
    unseen = set(METHODS) - {job.setting.method for job in seen} - {"held", "duty-cycle"}  # these need an order
    assert unseen == named >= {"adapt-lstsq", "lp-tree", "single", "astc"}
    assert {job.rung for job in seen} == {2}
    n = len(problem.test.y)
    nonsense = replace(problem.test, y=(problem.test.y + 1) % 3, hpc=np.full((n, 3), 1 / 3))
    small = replace(problem, train=replace(problem.train), test=nonsense)
    one, other = (learn(p, ("auto",), quiet=True, jobs=1) for p in (problem, small))
    assert [(p.method, p.params, p.valid, p.program) for p in one] == [
        (p.method, p.params, p.valid, p.program) for p in other
    ]


# ---------------------------------------------------------------- the job cache


@pytest.fixture
def cached_jobs(tmp_path):
    """Two finished jobs on disk, and their points."""
    lad = Ladder(make_problem(n=60))
    cache = JobCache(tmp_path / "sweep", {"seed": 0})
    jobs = [Job(Setting("greedy-miser", {"gamma": 0.1}), rung) for rung in (1, 2)]
    points = [run_job(lad, job) for job in jobs]
    for job, made in zip(jobs, points, strict=True):
        cache.add(job, made)
    return cache, jobs, points


def test_the_drafts_of_a_job_are_never_in_memory_together(cached_jobs, monkeypatch):
    cache, jobs, points = cached_jobs
    steps, pack, write = [], job_cache.pack_bundle, job_cache.write_whole
    monkeypatch.setattr(job_cache, "pack_bundle", lambda bundle: (steps.append("packed"), pack(bundle))[1])
    monkeypatch.setattr(job_cache, "write_whole", lambda *file: (steps.append("written"), write(*file))[1])
    cache.add(jobs[0], points[0] * 3)
    assert steps == ["packed", "written"] * 3 + ["written"]


def test_what_is_kept_is_found_again_to_the_last_bit(cached_jobs):
    cache, jobs, points = cached_jobs
    again = JobCache(cache.folder, {"seed": 0})
    assert [plain(again.find(job)) for job in jobs] == [plain(made) for made in points]
    assert len(again) == 2


def test_another_task_another_setting_or_another_rung_finds_nothing(cached_jobs):
    cache, jobs, _ = cached_jobs
    other = JobCache(cache.folder, {"seed": 1})
    assert (other.find(jobs[0]), len(other)) == (None, 0)
    assert cache.find(replace(jobs[0], rung=3)) is None
    assert cache.find(replace(jobs[0], setting=Setting("greedy-miser", {"gamma": 0.2}))) is None


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("harm", ["cut", "flipped", "gone", "empty", "other"])
def test_a_damaged_entry_is_not_there(cached_jobs, suffix, harm):
    cache, jobs, points = cached_jobs
    first = cache.folder / f"{cache._name({'setting': vars(jobs[0].setting), 'rung': 1})}.json"
    path = first if suffix == ".json" else next(cache.folder.glob("*.safetensors"))
    data = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif harm == "flipped":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if harm == "empty" else b"\xff{}" * 50)
    assert cache.find(jobs[0]) is None
    assert plain(cache.find(jobs[1])) == plain(points[1])
    cache.add(jobs[0], points[0])
    assert plain(cache.find(jobs[0])) == plain(points[0])


def test_a_kept_entry_cannot_point_out_of_its_folder(cached_jobs):
    cache, jobs, points = cached_jobs
    (cache.folder.parent / "x.safetensors").write_bytes(next(cache.folder.glob("*.safetensors")).read_bytes())
    entry = [{"params": {}, "valid": points[0][0].valid.to_json(), "sha256": "../x"}]
    cache._add_plain({"setting": vars(jobs[0].setting), "rung": 1}, entry)
    assert cache.find(jobs[0]) is None


# ---------------------------------------------------------------- a sweep that was killed

SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has it ignored
from hardcase.cli import main
from hardcase_train.settings.effort import EFFORTS
from hardcase_train.sweep import job_cache
from tests.helpers.train.problems import LEAST
EFFORTS["quick"] = LEAST
add = job_cache.JobCache.add
def slowly(self, job, points):
    add(self, job, points)
    print("kept", flush=True)
    time.sleep(60)
job_cache.JobCache.add = slowly
sys.exit(main(sys.argv[1:]))
"""


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def table_in(folder):
    """A hardcase.toml with its table."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 2
    write_csv(folder / "data.csv", {"a": np.round(y + rng.normal(size=90), 3), "b": rng.integers(0, 9, 90), "y": y})
    return toml(folder)


@pytest.fixture
def data(tmp_path):
    return table_in(tmp_path)


def train_and_count(path):
    """The files of a build, and how many jobs were run for it and kept until it stood."""
    kept = []
    add = JobCache.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EFFORTS, "quick", LEAST)
        patch.setattr(JobCache, "add", lambda self, job, points: (add(self, job, points), kept.append(job)))
        assert main(["train", str(path), "--out", str(path.parent / "build")]) == 0
    return files(path.parent / "build"), len(kept)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a build that nothing disturbed, and how many jobs it took."""
    built, n_jobs = train_and_count(table_in(tmp_path_factory.mktemp("whole")))
    assert n_jobs > 4
    return built, n_jobs


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_sweep_goes_on_and_ends_in_the_same_bytes(tmp_path, data, whole, sign, capsys):
    """Another process goes on, so that all it knows of the first is in the folder."""
    command = [sys.executable, "-c", SLOW, "train", str(data), "--out", str(tmp_path / "build"), "--jobs", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "kept\n"
        child.send_signal(sign)
        _, err = child.communicate(timeout=60)
        assert child.returncode == (-sign if sign == signal.SIGKILL else 130)
        assert "settings about: " in err, "it says before the long work what it is about to do"
        if sign != signal.SIGKILL:
            assert "run the same command again to resume" in err
    left = tmp_path / ".build.sweep"
    lock = [".build.lock"] if sign == signal.SIGKILL else []  # which locks nobody out
    assert sorted(p.name for p in tmp_path.iterdir()) == [*lock, left.name, "data.csv", "hardcase.toml"]
    assert train_and_count(data) == (whole[0], whole[1] - 1)
    assert capsys.readouterr().err.count("finished jobs of an earlier run; resuming\n") == 1
    assert not left.exists()


# ---------------------------------------------------------------- clusters

CLUSTER = ("greedy-miser", "static", "cascade", "budget-prune")


@contextmanager
def dask_cluster():
    """Two processes, forked from one that has imported what both need, which took each some three seconds."""
    import dask
    from distributed import LocalCluster
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", "hardcase_train.sweep.halving"])
        with LocalCluster(
            n_workers=2, processes=True, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", silence_logs=50
        ) as cluster:
            yield cluster.scheduler_address


@pytest.mark.filterwarnings("default")  # theirs
def test_a_cluster_of_two_processes_gives_what_threads_give(monkeypatch):
    problem = make_problem(n=60, effort=BRIEF)
    here = plain(learn(problem, CLUSTER, quiet=True))
    with dask_cluster() as address, open_pool(address) as pool:
        assert plain(learn(problem, CLUSTER, quiet=True, pool=pool)) == here
        pids = {pid for _, pid in pool(process_id, None, range(12))}
        assert os.getpid() not in pids
        assert len(pids) == 2
        monkeypatch.setattr(executors, "code_here", lambda: "another")
        with pytest.raises(InputError, match="other versions of hardcase"):
            list(pool(process_id, None, [0]))


def process_id(_, item):
    time.sleep(0.05)
    return os.getpid()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--dask", "127.0.0.1:1"), "no Dask scheduler answers at 127.0.0.1:1"),
        (("--dask", ""), "no Dask scheduler answers at"),
        (("--jobs", "0"), "1 to 1024 threads"),
        (("--seeds", "0"), "1 to 1000"),
    ],
)
@pytest.mark.filterwarnings("default")
def test_a_cluster_that_cannot_be_used_is_one_line(tmp_path, data, capsys, monkeypatch, flags, said):
    monkeypatch.setattr(executors, "CONNECT_S", 1.0)
    status, _, err = run(capsys, "train", data, "--out", tmp_path / "build", *flags)
    assert (status, err.count("\n")) == (2, 1), err
    assert said in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv", "hardcase.toml"]


def test_a_missing_package_is_one_line(tmp_path, data, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, _, err = run(capsys, "train", data, "--out", tmp_path / "build", "--dask", "127.0.0.1:1")
    assert (status, err.count("\n")) == (2, 1)
    assert "pip install 'hardcase-train[dask]'" in err


@pytest.fixture
def sources(tmp_path):
    """A package with a room, and another package."""
    for name in ("one/__init__.py", "one/room/a.py", "two/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"NAME = {name!r}")
    return tmp_path


CHANGES = {
    "a file of a package": lambda folder: (folder / "one/__init__.py").write_text("NAME = 1"),
    "a file in a room": lambda folder: (folder / "one/room/a.py").write_text("NAME = 1"),
    "a new file in a room": lambda folder: (folder / "one/room/c.py").touch(),
    "a file renamed": lambda folder: (folder / "two/b.py").rename(folder / "two/c.py"),
    "a file moved up, out of its room": lambda folder: (folder / "one/room/a.py").rename(folder / "one/a.py"),
    "a room renamed": lambda folder: (folder / "one/room").rename(folder / "one/hall"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_digest_of_code_knows_each_file_in_each_room_by_its_path(sources, change):
    folders, versions = [sources / "one", sources / "two"], ["1.0", "2.0"]
    before = code_digest(folders, versions)
    (sources / "one" / "notes.txt").write_text("no code")
    assert code_digest(folders, versions) == before != code_digest(folders, ["1.0", "2.1"])
    CHANGES[change](sources)
    assert code_digest(folders, versions) != before


def test_the_digest_does_not_depend_on_where_the_packages_lie(sources):
    shutil.copytree(sources / "one", sources / "elsewhere" / "one")
    assert code_digest([sources / "one"], []) == code_digest([sources / "elsewhere" / "one"], [])


def test_settings_are_plain_json():
    whole = Ladder(make_problem(n=60))
    for method in METHODS:
        grid = settings_of(method, whole)
        assert grid
        assert [json.loads(json.dumps(s.params)) for s in grid] == [s.params for s in grid]
    assert ladder.ALL == 1


# ---------------------------------------------------------------- seeds and baselines


def test_the_baselines_stand_beside_a_method_unless_they_are_refused(tmp_path, data, capsys):
    alone = {"hpc", "greedy-miser"}
    for flags, expected in (((), {*alone, "static", "cascade"}), (("--no-baselines",), alone)):
        argv = ("train", data, "--out", tmp_path / "build", "--method", "greedy-miser", *flags)
        said = ran(capsys, *argv)
        assert {p["method"] for p in said["front"]["points"]} == expected
        picture = (tmp_path / "build" / "front.svg").read_text()
        assert all(f">{m}<" in picture for m in expected - {"hpc"})
        assert ">f0 for every case<" in picture


def test_seeds_give_a_table_with_intervals_and_one_seed_says_that_it_has_none(tmp_path, data, capsys):
    argv = ("train", data, "--out", tmp_path / "build", "--method", "greedy-miser")
    fronts = [run(capsys, *argv, "--seed", k)[1]["front"] for k in (3, 4)]
    page = (tmp_path / "build" / "front.md").read_text()
    assert "one seed, so no intervals" in page
    assert "±" not in page.partition("##")[2]
    both = run(capsys, *argv, "--seed", 3, "--seeds", 2)[1]["front"]
    assert both["points"] == fronts[0]["points"]  # the build is the first seed's
    assert both["seeds"]["seeds"] == [3, 4]
    for max_loss in ("0.01", "0.005"):
        one, two = (f["seeds"]["max_loss"][max_loss] for f in fronts)
        rows = both["seeds"]["max_loss"][max_loss]
        assert set(rows) == {"f0", "greedy-miser", "static", "cascade", "hardcase"}
        for name, row in rows.items():
            for key in ("quality", "loss", "cost"):
                a, b = one[name][key], two[name][key]
                assert row[key] == pytest.approx((a + b) / 2)
                assert row[f"{key}_pm"] == pytest.approx(12.7062047 * abs(a - b) / 2)  # t(0.975, 1) of two values
    assert "± " in (tmp_path / "build" / "front.md").read_text()


def test_a_sweep_that_is_stopped_half_way_gives_no_warning_of_joblibs():
    """Here every warning is an error."""

    def stopped(results):
        next(results)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_pool(jobs=2) as pool:
        stopped(pool(lambda _, seconds: time.sleep(seconds), None, [0.0, 0.2, 0.2, 0.2, 0.2]))
