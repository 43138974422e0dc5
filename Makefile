# `make serve` and `make test` are all a newcomer needs; each installs what it uses.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: chromium help serve install test quick test-portable lint format types coverage coverage-all clients client-libraries failure-matrix captures mcp-servers sdk-client sdk-bridge scaling page page-pictures chaos siege fuzz soak soak-hour bench bench-parsing docs golden check clean

help:
	@echo "make serve     start the gateway (on the demo agent where there is no cursor-agent)"
	@echo "make install   give you the command cursor-gateway, in ~/.local"
	@echo "make test      run the tests"
	@echo "make quick     run the pure parts' tests and one of each surface, in half a minute"
	@echo "make test-portable  run the tests of processes without what only Linux offers, as on macOS"
	@echo "make check     lint, format, types"
	@echo "make coverage  branch coverage of the pure parts, which must be whole"
	@echo "make coverage-all  branch coverage of everything, by all tests"
	@echo "make clients   run real coding agents from npm against the gateway"
	@echo "make failure-matrix  what real clients show of failures, as docs/clients/failures.md"
	@echo "make captures  write what real clients print into docs/clients/ anew"
	@echo "make mcp-servers  run real MCP servers from npm behind the bridge"
	@echo "make sdk-client  run Cursor's own SDK client against the fake bridge"
	@echo "make sdk-bridge  compare the fake bridge with Cursor's, answer by answer"
	@echo "make scaling   two gateways behind a real HAProxy, one of which is killed or stopped"
	@echo "make page      try the page in a real Chromium"
	@echo "make bench     measure the gateway against the floor of its stack (needs a C compiler)"
	@echo "make bench-parsing  show that parsing takes linear time"
	@echo "make chaos     everything goes wrong at once, with either agent; what must hold is checked from outside"
	@echo "make siege     one attack after the other; health, others' answers and the end are watched"
	@echo "make fuzz      nearly right requests, agents, files and calls for every parser"
	@echo "make soak      many requests and slow streams; nothing may grow"
	@echo "make soak-hour an hour of guests, kills, stalled readers and cleaners; nothing may grow"
	@echo "make docs      write the generated pages of docs/ anew"
	@echo "make golden    write the golden frames of tests/golden/ anew; read the diff"
	@echo "make clean     remove what was built"

NEW_ENOUGH := $(PYTHON) -c 'import sys; sys.exit("cursor-gateway needs Python 3.11 or newer; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'

$(VENV)/bin/python:
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.installed

serve: $(VENV)/.installed
	@CURSOR_GATEWAY_DEMO=$${CURSOR_GATEWAY_DEMO:-if-missing} exec $(BIN)/cursor-gateway serve

# An environment of its own, since many systems' Pythons let nobody install into them.
PREFIX ?= $(HOME)/.local
HOUSE := $(PREFIX)/share/cursor-gateway
install:
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv '$(HOUSE)'
	'$(HOUSE)/bin/pip' install --quiet --disable-pip-version-check .
	@mkdir -p '$(PREFIX)/bin'
	ln -sf '$(HOUSE)/bin/cursor-gateway' '$(PREFIX)/bin/cursor-gateway'
	@command -v cursor-gateway >/dev/null || echo 'Now add $(PREFIX)/bin to your PATH.'

# Most tests wait for processes now and then, so one more runs at once than there are processors; more
# than four disturb each other.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
test: $(VENV)/.installed-dev
	$(PYTEST)

# The variable switches off all of processes/linux.py.
test-portable: $(VENV)/.installed-dev
	TEST_PORTABLE_PROCESSES=1 $(BIN)/python -m pytest -m processes -n auto --maxprocesses 4 --dist worksteal

check: lint types

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# What needs no event loop, no file and no process is pure, and has tests that need none either.
PURE := cursor_gateway/core/* cursor_gateway/dialects/* \
	$(addprefix cursor_gateway/agents/cursor/,stream.py deltas.py texts.py native_tools.py) \
	$(addprefix cursor_gateway/agents/acp/,models.py requests.py stream.py texts.py wire.py) \
	$(addprefix cursor_gateway/agents/sdk/,frames.py handshake.py models.py requests.py stream.py texts.py) \
	$(addprefix cursor_gateway/mcp_bridge/,config.py intake.py names.py results.py message_meter.py)
PURE_TESTS := tests/core tests/dialects $(addprefix tests/agents/test_,stream.py texts.py) \
	$(addprefix tests/agents/test_acp_,models.py requests.py stream.py texts.py wire.py) \
	$(addprefix tests/agents/test_sdk_,frames.py handshake.py models.py requests.py stream.py texts.py) \
	$(addprefix tests/bridge/test_,config.py intake.py names.py results.py message_meter.py)

# One test of each surface: the dialects over HTTP, what accompanies them, the commands.
SMOKE := tests/test_architecture.py tests/test_settings.py tests/config_files \
	tests/http/test_chat.py::test_a_plain_answer_is_the_fold_of_the_stream \
	tests/http/test_messages.py::test_parallel_calls_are_blocks_of_their_own \
	tests/http/test_responses.py::test_an_answer_goes_on_from_an_earlier_one \
	tests/http/test_chat_socket.py::test_one_connection_takes_one_request_after_the_other \
	tests/http/test_account.py::test_models_have_the_fields_that_scripts_rely_on \
	tests/http/test_failures.py::test_a_failure_after_the_first_word_is_the_last_frame \
	tests/http/test_life.py::test_a_client_that_leaves_stops_its_agent \
	tests/http/test_journal.py::test_a_record_says_what_became_of_a_request \
	tests/http/test_metrics.py::test_requests_and_errors_are_counted \
	tests/http/test_page.py::test_each_file_may_load_only_what_the_gateway_itself_serves \
	tests/http/test_relay.py::test_a_call_is_the_clients_and_its_result_goes_on_in_the_same_run \
	tests/http/test_tools.py::test_a_call_in_the_text_is_a_tool_call \
	tests/http/test_sessions.py::test_a_chat_goes_on_with_the_new_message_only \
	tests/bridge/test_tools.py::test_tools_are_listed_and_called \
	tests/clients/test_openai_sdk.py::test_the_async_client_folds_and_streams \
	tests/clients/test_anthropic_sdk.py::test_the_async_client_folds_and_streams \
	tests/test_cli.py::test_help_names_every_command tests/test_cli.py::test_ask_prints_the_answer \
	tests/test_logs.py::test_one_request_is_shown_whole \
	tests/test_setup.py::test_oh_my_pi_asks_the_gateway_unless_told_otherwise \
	tests/test_service.py::test_the_unit_and_the_plist_are_these \
	tests/test_running_gateways.py::test_a_running_gateway_tells_scripts_its_pid_and_port \
	tests/test_embedding.py::test_a_gateway_runs_inside_the_callers_loop \
	tests/doctor/test_doctor.py::test_secrets_are_not_shown
quick: $(VENV)/.installed-dev
	$(PYTEST) $(PURE_TESTS) $(SMOKE)

# The pure parts are covered whole, by their own tests; the rest meets machines that a test cannot be.
comma := ,
space := $(subst ,, )
coverage: $(VENV)/.installed-dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PURE_TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='$(subst $(space),$(comma),$(PURE))' --fail-under=100

coverage-all: $(VENV)/.installed-dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=95

# The real programs, from npm. Half a gigabyte and some minutes, so not part of `make test`.
CLIENTS := .clients
$(CLIENTS)/.installed: Makefile
	@command -v npm >/dev/null || { echo "make clients needs node and npm"; exit 1; }
	mkdir -p $(CLIENTS)
	cd $(CLIENTS) && npm install --no-fund --no-audit --loglevel=error --no-save \
		opencode-ai@1.18.33 @mariozechner/pi-coding-agent@0.73.1 droid@0.215.0 \
		bun@1.4.4 @oh-my-pi/pi-coding-agent@18.2.3 @anthropic-ai/claude-code@2.1.325 \
		@openai/codex@0.166.0 @continuedev/cli@1.5.47 cline@3.0.65 \
		@kilocode/cli@7.7.7 @qwen-code/qwen-code@0.24.4
	@touch $@

clients client-libraries failure-matrix captures: export CLIENTS_DIR := $(CLIENTS)
# Where no other machine exists: whoever tries to reach one is found out.
LOOPBACK_ONLY := $(BIN)/python -m tests.clients.loopback_only

# Libraries that call tools; `clients` runs them, too.
clients: client-libraries
$(CLIENTS)/python/.installed: Makefile
	$(PYTHON) -m venv $(CLIENTS)/python
	$(CLIENTS)/python/bin/pip install --quiet --disable-pip-version-check 'smolagents[openai]==1.26.0' \
		instructor==1.17.0 'pydantic-ai-slim[openai,anthropic]==2.31.1' 'anthropic<1'
	@touch $@

client-libraries: $(VENV)/.installed-dev $(CLIENTS)/python/.installed
	$(LOOPBACK_ONLY) $(BIN)/python -m pytest -v tests/clients/real_libraries.py

# Python programs, with half a hundred dependencies each.
$(CLIENTS)/aider/.installed: Makefile
	$(PYTHON) -m venv $(CLIENTS)/aider
	$(CLIENTS)/aider/bin/pip install --quiet --disable-pip-version-check aider-chat==0.86.2
	@touch $@

$(CLIENTS)/gptme/.installed: Makefile
	$(PYTHON) -m venv $(CLIENTS)/gptme
	$(CLIENTS)/gptme/bin/pip install --quiet --disable-pip-version-check gptme==0.35.1
	@touch $@

$(CLIENTS)/.all: $(CLIENTS)/.installed $(CLIENTS)/aider/.installed $(CLIENTS)/gptme/.installed
	ln -sf ../../aider/bin/aider ../../gptme/bin/gptme $(CLIENTS)/node_modules/.bin/
	@touch $@

clients: $(VENV)/.installed-dev $(CLIENTS)/.all
	$(LOOPBACK_ONLY) $(BIN)/python -m pytest -v tests/clients/real_programs.py

# `make failure-matrix MATRIX_CLIENTS=codex,pi MATRIX_FAILURES=usage-limit` measures these cells only.
failure-matrix: $(VENV)/.installed-dev $(CLIENTS)/.all
	$(LOOPBACK_ONLY) $(BIN)/python -m pytest -n 2 --dist loadgroup --tb=line tests/clients/failure_matrix.py; \
	status=$$?; $(BIN)/python -m tests.clients.failure_table && exit $$status

captures: $(VENV)/.installed-dev $(CLIENTS)/.all
	$(BIN)/python -m pytest tests/clients/captures.py

MCP_SERVERS := .mcp-servers
$(MCP_SERVERS)/.installed: Makefile
	@command -v npm >/dev/null || { echo "make mcp-servers needs node and npm"; exit 1; }
	mkdir -p $(MCP_SERVERS)
	cd $(MCP_SERVERS) && npm install --no-fund --no-audit --loglevel=error --no-save \
		@modelcontextprotocol/server-everything@2026.8.31 \
		@modelcontextprotocol/server-filesystem@2026.8.31
	@touch $@

mcp-servers: $(VENV)/.installed-dev $(MCP_SERVERS)/.installed
	MCP_SERVERS_DIR=$(MCP_SERVERS) $(BIN)/python -m pytest -v tests/bridge/real_servers.py

# Cursor's SDK: 175 MB under a licence of its own, so neither a part of us nor of what tests need.
SDK := .sdk
$(SDK)/.installed: Makefile $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --target $(SDK)/python cursor-sdk==1.1.0
	@touch $@

sdk-client sdk-bridge: export PYTHONPATH := $(SDK)/python
sdk-client: $(VENV)/.installed-dev $(SDK)/.installed
	$(LOOPBACK_ONLY) $(BIN)/python -m pytest -v tests/sdk/official_client.py

# `.ci/run` has it where the package can be installed.
sdk-bridge: $(VENV)/.installed-dev $(SDK)/.installed
	$(LOOPBACK_ONLY) $(BIN)/python -m pytest -v tests/sdk/real_bridge.py

# `.ci/run` has it where haproxy is installed.
scaling: $(VENV)/.installed-dev
	@PATH="$$PATH:/usr/sbin" command -v haproxy >/dev/null || { echo "make scaling needs haproxy (apt install haproxy)"; exit 1; }
	$(BIN)/python -m pytest -v tests/scaling/behind_haproxy.py

# A driver for the browser and axe-core, a quarter of a gigabyte; the browser itself is the machine's.
PAGE := .page
export CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
$(PAGE)/.installed: Makefile $(VENV)/bin/python
	@command -v npm >/dev/null || { echo "make page needs node and npm"; exit 1; }
	mkdir -p $(PAGE)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --target $(PAGE)/python playwright==1.65.0
	cd $(PAGE) && npm install --no-fund --no-audit --loglevel=error --no-save axe-core@4.14.0
	@touch $@

page page-pictures: export PAGE_DIR := $(PAGE)
page page-pictures: export PYTHONPATH := $(PAGE)/python
page: $(VENV)/.installed-dev $(PAGE)/.installed chromium
	$(BIN)/python -m pytest -v tests/page/in_chromium.py

# Writes the pictures of docs/page.md anew.
page-pictures: $(VENV)/.installed-dev $(PAGE)/.installed chromium
	$(BIN)/python -m tests.page.screenshots

chromium:
	@test -n "$(CHROMIUM)" || { echo "make page needs chromium (Debian: apt install chromium), or CHROMIUM=/path/to/it"; exit 1; }

# Writes its figures to docs/measurements.md. `make bench AGENT=sdk` measures what the bridge changes only.
bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks $(if $(AGENT),--agent $(AGENT))

# `make chaos AGENT=sdk SEED=5` plays one agent only, and repeats the choices of a run.
chaos: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.chaos $(if $(AGENT),--agent $(AGENT)) $(if $(SEED),--seed $(SEED))

# `make siege SCENES="'a daemon' 'large bodies'"` plays these only.
siege: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.siege $(SCENES)

# Until it has tried so many values of each kind; with atheris installed, as many by coverage.
EXAMPLES ?= 20000
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.fuzz --examples $(EXAMPLES)

REQUESTS ?= 20000
STREAMS ?= 200
soak: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.soak --requests $(REQUESTS) --streams $(STREAMS)

MINUTES ?= 60
soak-hour: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.soak_hour --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench-parsing: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.parsing

docs: $(VENV)/.installed-dev
	$(BIN)/python -m docs.generate

golden: $(VENV)/.installed-dev
	$(BIN)/python -m tests.dialects.golden

clean:
	rm -rf $(VENV) $(CLIENTS) $(MCP_SERVERS) $(SDK) $(PAGE) build dist *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
