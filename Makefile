# Names for what one does every day. `make` alone lists them.
.DEFAULT_GOAL := help
CRAB := target/release/crab

help:            ## list these names
	@grep -E '^[a-z]+: .*##|^[a-z]+:  *##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/\t/' | expand -t 16

demo:            ## see the main job with no key and no network
	cargo run --release --quiet -- --provider mock -p 'call glob {"pattern":"*.md"}'

test:            ## run every test (T=name: those whose name contains it)
	cargo test --workspace $(T)

check: lint size test   ## what CI runs, in the same order

lint:            ## format, clippy and doc, without warnings
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet

fix:             ## let the tools mend what they can
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

build:           ## the release binary
	cargo build --release

size:            ## print the size of the release binary; fail above the limit
	scripts/size

try: build       ## run a mock script: make try S=script.jsonl P='a prompt'
	CRAB_MOCK_SCRIPT=$(S) $(CRAB) --provider mock --no-session -p '$(or $(P),go)'

perf: build      ## instructions of --version and of one mock turn (needs valgrind)
	@for a in "--version" "--provider mock --no-session -p hello"; do \
	  valgrind --tool=callgrind --callgrind-out-file=/dev/null $(CRAB) $$a 2>&1 >/dev/null </dev/null \
	  | awk -v a="$$a" '/Collected/ { printf "%12d instructions: crab %s\n", $$4, a }'; done

survive:         ## kill a conversation at 1,000 instants and every system call, and fail its disk (needs strace, 5 to 10 minutes)
	CRAB_SURVIVE=1000 cargo test -p crab-cli --test it survive -- --nocapture --test-threads 2

pictures:        ## draw the pictures of the README anew, from a real session on a pseudo-terminal
	cargo test --quiet -p crab-cli --test it -- --ignored draw_the_pictures_of_the_readme

audit:           ## the licences of everything in the binary
	cargo tree --workspace --edges normal --prefix none --format '{l}' | sort | uniq -c | sort -rn

install:         ## put crab into ~/.cargo/bin
	cargo install --path crab-cli --locked

.PHONY: help demo test check lint fix build size try perf survive pictures audit install
