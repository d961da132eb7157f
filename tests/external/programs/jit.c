/*
 * A small JIT compiler for x86-64 with the properties that matter to profilers: it omits frame pointers (or keeps them), writes a jitdump with
 * unwinding tables and lines, overwrites code with other code, moves code, changes the protection of its memory around each change, and forks.
 *
 * Usage: jit bare|frames TRUTH [server]. Each line of the file TRUTH describes a period: process, start and end in nanoseconds of
 * CLOCK_MONOTONIC, and the functions that are on the stack all the time, innermost first.
 *
 * As a server, it removes its jitdump as soon as it has mapped it. It waits for a line from standard input before it compiles anything, and again
 * before it exits. Each time, it first writes a line to standard output.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __x86_64__
#error "this program makes x86-64 code"
#endif

#define REGION 0x10000
#define SLOT 0x100
#define STRETCH 200000000ull /* nanoseconds of CPU time, so that as many samples are taken on a busy machine */

static int dump, with_frames;
static FILE *truth;
static uint8_t *region;
static uint64_t next_index;

static uint64_t time_of(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t now(void) { return time_of(CLOCK_MONOTONIC); }

/* A buffer that records and code are put together in. */
struct bytes {
	uint8_t data[1024];
	size_t size;
};

static void put(struct bytes *b, const void *data, size_t size)
{
	memcpy(b->data + b->size, data, size);
	b->size += size;
}

static void put8(struct bytes *b, uint8_t value) { put(b, &value, 1); }
static void put32(struct bytes *b, uint32_t value) { put(b, &value, 4); }
static void put64(struct bytes *b, uint64_t value) { put(b, &value, 8); }

static void begin(struct bytes *b, uint32_t kind)
{
	b->size = 0;
	put32(b, kind);
	put32(b, 0);
	put64(b, now());
}

/* One write a record, so that parent and child can share the file. */
static void end(struct bytes *b)
{
	uint32_t size = b->size;
	memcpy(b->data + 4, &size, 4);
	if (write(dump, b->data, b->size) != (ssize_t)b->size)
		abort();
}

static void open_dump(void)
{
	char name[64];
	struct bytes b = { .size = 0 };
	snprintf(name, sizeof name, "jit-%d.dump", getpid());
	dump = open(name, O_CREAT | O_EXCL | O_RDWR | O_APPEND, 0600);
	put32(&b, 0x4A695444);
	put32(&b, 1);
	put32(&b, 40);
	put32(&b, 62);
	put32(&b, 0);
	put32(&b, getpid());
	put64(&b, now());
	put64(&b, 0);
	if (write(dump, b.data, b.size) != (ssize_t)b.size)
		abort();
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0) == MAP_FAILED)
		abort();
}

/* Tables for code that has `stack` bytes on the stack between its first instructions and its last byte. */
static void write_unwinding(uint64_t size, uint8_t stack)
{
	static const uint8_t cie[] = { 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0 };
	struct bytes t = { .size = 0 }, b;
	size_t fde;
	uint32_t length;
	put32(&t, 4 + sizeof cie);
	put32(&t, 0);
	put(&t, cie, sizeof cie);
	fde = t.size;
	put32(&t, 0);
	put32(&t, fde + 4);
	put32(&t, -(((size + 7) & ~7ull) + t.size));
	put32(&t, size);
	put8(&t, 0);
	if (with_frames) {
		put(&t, "\x41\x0e\x10\x86\x02\x43\x0d\x06", 8); /* push %rbp; mov %rsp,%rbp */
		put8(&t, 0x02), put8(&t, size - 5);
		put(&t, "\x0c\x07\x08\xc6", 4); /* pop %rbp is done: it holds the caller's again, and what was below the stack is not recorded */
	} else {
		put8(&t, 0x44), put8(&t, 0x0e), put8(&t, 8 + stack);
		put8(&t, 0x02), put8(&t, size - 5);
		put8(&t, 0x0e), put8(&t, 8);
	}
	while (t.size % 8)
		put8(&t, 0);
	length = t.size - fde - 4;
	memcpy(t.data + fde, &length, 4);
	put32(&t, 0);
	begin(&b, 4);
	put64(&b, t.size + 12);
	put64(&b, 12);
	put64(&b, 0);
	put(&b, t.data, t.size);
	put(&b, "\x01\x1b\x03\x3b\0\0\0\0\0\0\0\0", 12);
	end(&b);
}

static void write_lines(uint64_t address, uint32_t line)
{
	struct bytes b;
	begin(&b, 2);
	put64(&b, address);
	put64(&b, 2);
	for (int i = 0; i < 2; i++) {
		put64(&b, address + i * 9);
		put32(&b, line + i);
		put32(&b, 0);
		put(&b, "made.src", 9);
	}
	end(&b);
}

/* Puts code into a slot and announces it. */
static void load(int slot, const char *name, const struct bytes *code, uint8_t stack)
{
	uint64_t address = (uint64_t)region + slot * SLOT;
	struct bytes b;
	mprotect(region, REGION, PROT_READ | PROT_WRITE);
	memcpy((void *)address, code->data, code->size);
	write_lines(address, 10 * slot + 1);
	write_unwinding(code->size, stack);
	begin(&b, 0);
	put32(&b, getpid());
	put32(&b, gettid());
	put64(&b, address);
	put64(&b, address);
	put64(&b, code->size);
	put64(&b, next_index++);
	put(&b, name, strlen(name) + 1);
	put(&b, code->data, code->size);
	end(&b);
	/* Every map of the region that follows would hide the code announced so far. */
	mprotect(region, REGION, PROT_READ | PROT_EXEC);
}

static void enter(struct bytes *code, uint8_t stack)
{
	code->size = 0;
	if (with_frames)
		put(code, "\x55\x48\x89\xe5", 4); /* push %rbp; mov %rsp,%rbp */
	else
		put(code, "\x48\x83\xec", 3), put8(code, stack); /* sub $stack,%rsp */
}

static void leave(struct bytes *code, uint8_t stack)
{
	if (with_frames)
		put(code, "\x5d", 1); /* pop %rbp */
	else
		put(code, "\x48\x83\xc4", 3), put8(code, stack); /* add $stack,%rsp */
	put8(code, 0xc3);
}

/* A function that takes some milliseconds. */
static void load_inner(int slot, const char *name)
{
	struct bytes code;
	enter(&code, 0x18);
	put8(&code, 0xb9), put32(&code, 10000000);	/* mov $..,%ecx */
	put(&code, "\xff\xc9\x75\xfc", 4);		/* 1: dec %ecx; jnz 1b */
	leave(&code, 0x18);
	load(slot, name, &code, 0x18);
}

/* A function that calls what is in another slot. */
static void load_caller(int slot, const char *name, int callee)
{
	struct bytes code;
	enter(&code, 0x28);
	put(&code, "\x48\xb8", 2), put64(&code, (uint64_t)region + callee * SLOT); /* mov $..,%rax */
	put(&code, "\xff\xd0", 2);						   /* call *%rax */
	leave(&code, 0x28);
	load(slot, name, &code, 0x28);
}

static void move(int from, int to, uint64_t size, uint64_t index)
{
	uint64_t old = (uint64_t)region + from * SLOT, new = (uint64_t)region + to * SLOT;
	struct bytes b;
	mprotect(region, REGION, PROT_READ | PROT_WRITE);
	memcpy((void *)new, (void *)old, size);
	memset((void *)old, 0xcc, size);
	begin(&b, 1);
	put32(&b, getpid());
	put32(&b, gettid());
	put64(&b, new);
	put64(&b, old);
	put64(&b, new);
	put64(&b, size);
	put64(&b, index);
	end(&b);
	mprotect(region, REGION, PROT_READ | PROT_EXEC);
}

__attribute__((noinline)) void run_stretch(int slot, const char *stack)
{
	void (*function)(void) = (void (*)(void))(region + slot * SLOT);
	uint64_t start, used;
	/*
	 * Once before, so that all pages are there: a page fault takes long enough to be sampled, and one at the first instruction of a function
	 * finds no frame of it yet.
	 */
	function();
	start = now();
	used = time_of(CLOCK_PROCESS_CPUTIME_ID);
	while (time_of(CLOCK_PROCESS_CPUTIME_ID) - used < STRETCH)
		function();
	fprintf(truth, "%d %llu %llu %s\n", getpid(), (unsigned long long)start, (unsigned long long)now(), stack);
	fflush(truth);
}

static void wait_for_client(void)
{
	puts("waiting");
	fflush(stdout);
	if (getchar() == EOF)
		exit(1);
}

int main(int argc, char **argv)
{
	pid_t child;
	int is_server = argc == 4 && !strcmp(argv[3], "server");
	if (argc != 3 + is_server)
		return 2;
	with_frames = !strcmp(argv[1], "frames");
	truth = fopen(argv[2], "a");
	open_dump();
	if (is_server) {
		char name[64];
		snprintf(name, sizeof name, "jit-%d.dump", getpid());
		unlink(name);
		wait_for_client();
	}
	region = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	load_inner(2, "inner_1");
	load_caller(1, "middle_1", 2);
	load_caller(0, "outer_1", 1);
	run_stretch(0, "inner_1 middle_1 outer_1");

	load_inner(2, "inner_2"); /* other code at the same address */
	run_stretch(0, "inner_2 middle_1 outer_1");

	move(1, 5, with_frames ? 18 : 21, 1);
	load_caller(0, "outer_3", 5);
	load_inner(1, "unused");
	run_stretch(0, "inner_2 middle_1 outer_3");

	child = fork();
	if (!child) {
		run_stretch(0, "inner_2 middle_1 outer_3"); /* inherited */
		load_inner(2, "inner_4");
		run_stretch(0, "inner_4 middle_1 outer_3");
		_exit(0);
	}
	waitpid(child, NULL, 0);
	run_stretch(0, "inner_2 middle_1 outer_3"); /* the child's code is not the parent's */
	if (is_server)
		wait_for_client();
	return 0;
}
