# Every task by name. The first use makes a virtual environment in .venv; an active environment that has the
# packages (conda, mamba, venv) is used as it is.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Recipes read the course's path from their environment: there the shell does not interpret a blank or a quote in it.
export COURSE_ROOT := $(CURDIR)
# A misspelt word must not do more than was meant: REGRADE=1 STUDENT=ada would grade the whole class again.
WORDS := WEEK STUDENTS REGRADE TIMINGS ISOLATION WORKERS SCHEDULER FILE JSON FORMAT EXERCISES EARLIER INDEX PYTEST JOBS FRESH N PYTHON
UNKNOWN := $(foreach word,$(filter-out $(WORDS) SHELL,$(.VARIABLES)),$(if $(findstring _,$(word)),,$(if $(filter command,$(origin $(word))),$(word)=)))
ifneq ($(strip $(UNKNOWN)),)
  $(error make does not know $(strip $(UNKNOWN)) here. It knows $(addsuffix =,$(WORDS)))
endif

# Package sets to look for in the active environment; the first word of a set is its name.
SETS = "run torch nbgrader nbval jupytext rich jupyterlab latex2mathml" \
       "site nbgrader jupytext sphinx myst_parser furo sphinx_revealjs math_core ziamath" \
       "test torch nbgrader nbval pytest xdist pytest_timeout filelock hypothesis playwright transformers latex2mathml ruff mypy sphinx sphinx_revealjs math_core ziamath"
HAS = python -c "import importlib.util as u, sys; print(*(s.split()[0] for s in sys.argv[1:] if all(map(u.find_spec, s.split()[1:]))))"
ifneq ($(VIRTUAL_ENV)$(CONDA_PREFIX),)
  HERE := $(shell $(HAS) $(SETS) 2>/dev/null)
  ACTIVE := $(filter run,$(HERE))
  ACTIVE_FOR_SITE := $(filter site,$(HERE))
  ACTIVE_FOR_TESTS := $(filter test,$(HERE))
endif
PY := $(if $(ACTIVE),python,.venv/bin/python)
READY := $(if $(ACTIVE),,.venv/.ready)
SITE_PY := $(if $(ACTIVE_FOR_SITE),python,.venv/bin/python)
READY_FOR_SITE := $(if $(ACTIVE_FOR_SITE),,.venv/.ready-for-site)
TEST_PY := $(if $(ACTIVE_FOR_TESTS),python,.venv/bin/python)
READY_TO_TEST := $(if $(ACTIVE_FOR_TESTS),,.venv/.ready-to-test)
RUN := PYTHONPATH="$$COURSE_ROOT" $(PY) -m autograder
JUPYTER := PYTHONPATH="$$COURSE_ROOT" $(PY) -m jupyter
SERVER_OPTIONS := --ServerApp.jpserver_extensions="{'jupytext': False}"
# Whether a switch such as REGRADE=1 is on: empty, 0, no and false are off.
on = $(filter-out 0 n no No NO false False FALSE off,$(1))
ISOLATION ?= bubblewrap
# pytest recompiles its plugins, and would write the course's path into .venv, where every sandbox could read it.
# One process per core, so one thread each: a second torch thread would only wait, and use CPU while it waits.
PYTEST_RUN := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$$COURSE_ROOT" $(TEST_PY) -m pytest
JOBS ?= logical
# Keep the order of tests/conftest.py, which begins with the longest tests.
SPREAD = --no-loadscope-reorder --numprocesses $(JOBS) --maxprocesses 4 --dist loadgroup
WITH_NOTEBOOKS = --nbval --nbval-sanitize-with tests/nbval.cfg
GRADING := --isolation $(ISOLATION) $(if $(WORKERS),--workers $(WORKERS))

.PHONY: help demo test test-rest test-all slow quick lint build import student-release site slides autograde feedback report similarity regrade-requests lms quiz gradescope formgrader lab check doctor experiments bench bench-first bench-grade bench-gpu scale scale-cluster mutants hostile run-docs clean browser setup

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 26

demo: $(READY)  ## build, grade a simulated class, write feedback, compare with the due scores
	@$(RUN) build
	@$(RUN) demo $(if $(STUDENTS),--students $(STUDENTS)) $(GRADING)

test: $(READY_TO_TEST) browser  ## what people rely on, in seven to fifteen minutes (PYTEST="-k wire": some)
	@find .venv/lib -name "*-pytest-*.pyc" -delete 2>/dev/null || true
	@$(TEST_PY) -m compileall -q autograder  # compile once: the processes that the tests start write no compiled files
	@$(PYTEST_RUN) $(SPREAD) $(WITH_NOTEBOOKS) --part usual tests solutions $(PYTEST)

test-rest: $(READY_TO_TEST) browser  ## the tests that `make test` leaves out, marked nightly
	@$(PYTEST_RUN) $(SPREAD) -p no:nbval --part rest tests $(PYTEST)

test-all: test test-rest  ## all tests; CI and a nightly workflow run them

slow: export PYTEST := --durations=20 $(PYTEST)
slow: test  ## make test, and which twenty tests took longest

quick: $(READY_TO_TEST)  ## the loop of a minute: unit tests, but for the slow ones, and two small classes, graded
	@$(PYTEST_RUN) $(SPREAD) -p no:nbval --part usual -m "not slow and not timing" --ignore-glob "*/test_peers*" tests/course/test_several_weeks.py tests/unit $(PYTEST)

lint: $(READY_TO_TEST)  ## ruff (lint and format) and mypy; changes nothing
	@$(TEST_PY) -m ruff check .
	@$(TEST_PY) -m ruff format --check .
	@$(TEST_PY) -m mypy

build: $(READY)  ## notebooks/ and solutions/ from source/ (WEEK=3: one week)
	@$(RUN) build $(if $(WEEK),--week "$(WEEK)")

import: $(READY)  ## WEEK=3: bring an edit of source/week3_…/ made in JupyterLab or formgrader back into the text
	@$(RUN) import $(if $(WEEK),--week "$(WEEK)")

student-release: $(READY)  ## what students may have, as a folder and a zip under release/ (WEEK=1,2: these weeks)
	@$(RUN) student-release $(if $(WEEK),--week "$(WEEK)")

site: $(READY_FOR_SITE)  ## the course as a site to read, under build/site/
	@PYTHONPATH="$$COURSE_ROOT" $(SITE_PY) -m autograder site

slides: $(READY_FOR_SITE)  ## WEEK=3: a lecture out of the week's text, build/slides/week3_rope/index.html
	@PYTHONPATH="$$COURSE_ROOT" $(SITE_PY) -m autograder slides $(if $(WEEK),--week "$(WEEK)")

autograde: $(READY)  ## WEEK=3, WEEK=1,2 or WEEK=all: grade submitted/ (STUDENTS=ada,boole REGRADE=1 TIMINGS=1 ISOLATION=none WORKERS=2 SCHEDULER=tcp://…)
	@$(RUN) autograde $(if $(WEEK),--week "$(WEEK)") $(if $(STUDENTS),--students "$(STUDENTS)") $(if $(call on,$(REGRADE)),--regrade) $(if $(call on,$(TIMINGS)),--timings) $(if $(SCHEDULER),--scheduler "$(SCHEDULER)") $(GRADING)

feedback: $(READY)  ## WEEK=3 (or 1,2, as for the next ones): write feedback/ for everybody graded
	@$(RUN) feedback $(if $(WEEK),--week "$(WEEK)")

report: $(READY)  ## WEEK=3: one page on how the class did, with the misconceptions seen
	@$(RUN) report $(if $(WEEK),--week "$(WEEK)")

similarity: $(READY)  ## WEEK=3: one page of submissions that are more alike than they need be (EARLIER=../2025/submitted)
	@$(RUN) similarity $(if $(WEEK),--week "$(WEEK)") $(if $(EARLIER),--earlier "$(EARLIER)")

regrade-requests: $(READY)  ## WEEK=3: one page of what students ask to have looked at again, from regrade.csv
	@$(RUN) regrade-requests $(if $(WEEK),--week "$(WEEK)")

lms: $(READY)  ## FORMAT=canvas|moodle|brightspace|blackboard WEEK=3: the points, as that system imports them (EXERCISES=1)
	@$(RUN) lms --format "$(FORMAT)" $(if $(WEEK),--week "$(WEEK)") $(if $(call on,$(EXERCISES)),--exercises)

quiz: $(READY)  ## FORMAT=canvas|moodle|brightspace|blackboard WEEK=3: the week's questions, as that system imports them
	@$(RUN) quiz --format "$(FORMAT)" $(if $(WEEK),--week "$(WEEK)")

gradescope: $(READY)  ## WEEK=3: the autograder's zip for Gradescope, under release/ (INDEX=…: where small torch wheels are)
	@$(RUN) gradescope $(if $(WEEK),--week "$(WEEK)") $(if $(INDEX),--index "$(INDEX)")

check: $(READY)  ## FILE=notebooks/week3_rope/week3_rope.ipynb: grade your own notebook (JSON=1)
	@$(RUN) check "$(FILE)" $(if $(call on,$(JSON)),--json) $(GRADING)

lab: $(READY)  ## JupyterLab on the course
	@$(JUPYTER) lab $(SERVER_OPTIONS) --ServerApp.root_dir="$$COURSE_ROOT"

formgrader: $(READY)  ## nbgrader's formgrader on the course, in the browser
	@$(JUPYTER) lab $(SERVER_OPTIONS) --ServerApp.root_dir="$$COURSE_ROOT" --ServerApp.default_url=/formgrader

doctor: $(READY)  ## OK or FAIL for everything the course needs, with the remedy
	@$(RUN) doctor

experiments: $(READY)  ## the shipped results and checkpoints of weeks 5 to 8 and the pages of experiments/ (over an hour)
	@$(PY) experiments/extrapolation.py
	@$(PY) experiments/relative_bias.py
	@$(PY) experiments/capstone.py
	@$(PY) experiments/production.py
	@$(PY) experiments/weeks34.py
	@$(PY) experiments/distances.py

bench: $(READY)  ## stock nbgrader and this grader on one simulated class (WEEK=3 STUDENTS=24 FRESH=1); see benchmarks/
	@PYTHONPATH="$$COURSE_ROOT" $(PY) benchmarks/bench.py $(if $(WEEK),--week "$(WEEK)") $(if $(STUDENTS),--students $(STUDENTS)) $(if $(call on,$(FRESH)),--fresh)

bench-first: $(READY)  ## one submission by itself, beside `import torch` (WEEK=3); benchmarks/results_first.md
	@PYTHONPATH="$$COURSE_ROOT" $(PY) benchmarks/first_verdict.py $(if $(WEEK),--week "$(WEEK)")

bench-grade: $(READY)  ## how long %grade takes in a notebook (WEEK=3); benchmarks/results_grade.md
	@PYTHONPATH="$$COURSE_ROOT" $(PY) benchmarks/grade_magic.py $(if $(WEEK),--week "$(WEEK)")

bench-gpu: $(READY)  ## one class on the GPU and on the CPU, reference kernels beside the fastest there are (WEEK=3 STUDENTS=24)
	@PYTHONPATH="$$COURSE_ROOT" $(PY) benchmarks/gpu.py $(if $(WEEK),--week "$(WEEK)") $(if $(STUDENTS),--students $(STUDENTS))

scale: $(READY)  ## a thousand submissions in one run (N=1000 WEEK=1), against a hundred
	@PYTHONPATH="$$COURSE_ROOT" $(PY) benchmarks/scale.py $(if $(WEEK),--week "$(WEEK)") $(if $(N),--students $(N)) --isolation $(ISOLATION)

scale-cluster: $(READY_TO_TEST)  ## a thousand submissions over two Dask workers, one of them killed (N=1000 WEEK=1)
	@PYTHONPATH="$$COURSE_ROOT" $(TEST_PY) benchmarks/cluster.py $(if $(WEEK),--week "$(WEEK)") $(if $(N),--students $(N))

mutants: $(READY)  ## are the hidden tests sharp? every right answer changed in one place, and graded (WEEK=3); benchmarks/mutants.md
	@PYTHONPATH="$$COURSE_ROOT" $(PY) benchmarks/mutants.py $(if $(WEEK),--week "$(WEEK)")

hostile: $(READY_TO_TEST)  ## the whole hostile class in one run with the default limits: seconds a submission; benchmarks/hostile.md
	@PYTHONPATH="$$COURSE_ROOT" $(TEST_PY) benchmarks/hostile_class.py

run-docs: $(READY_TO_TEST)  ## every command of README and docs/, run as written in a scratch copy; lists what it cannot run
	@PYTHONPATH="$$COURSE_ROOT" $(TEST_PY) tests/documents.py

clean:  ## remove what can be made again (.venv, demo/, release/, caches); never student work or grades
	rm -rf .venv demo release .pytest_cache .mypy_cache .ruff_cache build *.egg-info .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

setup: $(READY)  ## only make the environment

browser: $(READY_TO_TEST)
	@PYTHONPATH="$$COURSE_ROOT" $(TEST_PY) tests/browser/find_browser.py --install

# Compiled files contain the path of their source. Student code can read them, so we compile with a false path.
INSTALL = .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile
COMPILE = .venv/bin/python -m compileall -qq -j 0 -s "$$COURSE_ROOT" -p /course .venv/lib || true

FIND_PYTHON = for python in "$(PYTHON)" python3.11 python3.12 python3.13 python3.14 python3; do \
	  if [ -n "$$python" ] && command -v "$$python" >/dev/null && "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then \
	    break; fi; python=; done; \
	[ -n "$$python" ] || { echo "error: Python 3.11 to 3.14 was not found; install it, or say where it is: make PYTHON=/path/to/python3.11" >&2; exit 2; }
# A lock held by the kernel: it is released when its process ends, however that happens.
HOLDING_LOCK = import fcntl, subprocess, sys; lock = open(".setup.lock", "w"); fcntl.flock(lock, fcntl.LOCK_EX); sys.exit(subprocess.call(sys.argv[1:]))

ifndef SETTING_UP
# If two makes run at once in a fresh clone, the second waits here, and then finds that nothing is left to do.
.venv/.ready .venv/.ready-for-site .venv/.ready-to-test: pyproject.toml
	@$(FIND_PYTHON); "$$python" -c '$(HOLDING_LOCK)' $(MAKE) SETTING_UP=yes $@
else
.venv/.python:
	@$(FIND_PYTHON); "$$python" -m venv .venv || { echo "error: could not make a virtual environment; on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 2; }
	@touch $@

.venv/.ready: pyproject.toml | .venv/.python
	@echo "Setting up .venv: first use only, some minutes; the README says how large the download is …"
	@$(INSTALL) --editable .
	@find .venv/lib -name __pycache__ -prune -exec rm -rf {} +
	@$(COMPILE)
	@touch $@

.venv/.ready-for-site: pyproject.toml | .venv/.ready
	@$(INSTALL) --editable '.[site]'
	@$(COMPILE)
	@touch $@

.venv/.ready-to-test: pyproject.toml | .venv/.ready
	@$(INSTALL) --editable '.[dev]'
	@$(COMPILE)
	@touch $@
endif
