/*
 * Replays records of the write-ahead log on single pages, by Postgres's own redo routines.
 *
 * A stock `postgres --single` loads this as a shared library. Its hook runs when shared memory and the buffer pool are
 * there, and never returns: no database is opened, no log is replayed, no file of a relation is touched. Requests come on
 * standard input and are answered on standard output, in order; the other end is `src/process.rs`, which has the form of
 * both. The process ends when its input does.
 *
 * A redo routine reads the pages that a record refers to from the buffer pool. Before each record the target page, as it
 * was, is put there; every other page that the routine could ask for is put there as an empty one whose LSN is the
 * largest: the routine takes it for newer than the record, and leaves it alone. All relations are replaced by one, whose
 * forks are believed to have all blocks.
 *
 * Before the first request a filter of system calls is installed: from then on the process can read its input, write its
 * output, get memory, and end. What comes in is a tenant's data, and may be hostile.
 */
#include "postgres.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "access/heapam_xlog.h"
#include "access/rmgr.h"
#include "access/visibilitymap.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "catalog/pg_tablespace_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/smgr.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 180000
#error "thalweg_redo is written for Postgres 15 to 17"
#endif

/* What versions name differently. */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator RelationFiles;
#define FILES_OF(block) ((block)->rlocator)
#define DROP_BUFFERS DropRelationBuffers
#define MAKE_FILES(tablespace, database, number) { .spcOid = (tablespace), .dbOid = (database), .relNumber = (number) }
#else
typedef RelFileNode RelationFiles;
#define FILES_OF(block) ((block)->rnode)
#define DROP_BUFFERS DropRelFileNodeBuffers
#define MAKE_FILES(tablespace, database, number) { .spcNode = (tablespace), .dbNode = (database), .relNode = (number) }
#endif
#if PG_VERSION_NUM >= 170000
#define NO_BACKEND INVALID_PROC_NUMBER
#else
#define NO_BACKEND InvalidBackendId
#endif

PG_MODULE_MAGIC;
void		_PG_init(void);

/* Requests are refused beyond this many bytes. */
#define REQUEST_MAX (256 * 1024 * 1024)
/* Blocks of a heap whose bits are in one page of the visibility map. */
#define HEAP_BLOCKS_PER_MAP ((BLCKSZ - MAXALIGN(SizeOfPageHeaderData)) * 4)
/* Slots of a page of the free space map. */
#define FREE_SPACE_SLOTS 4069

enum
{
	OP_APPLY = 1,				/* replay records on a page */
	OP_MASK = 2,				/* blank out of a page what replay may leave different */
};

enum
{
	DONE = 0,
	FAILED = 1,
};

/* The form of a request behind its length. An OP_APPLY is followed by the page, if it has one, and by its records. */
typedef struct
{
	uint8		op;
	uint8		has_page;
	uint8		fork;
	uint8		rmgr;			/* of OP_MASK */
	uint32		block;
	RelationFiles relation;
	uint32		records;
} Request;

/* The form of a record behind a request. Its bytes follow. */
typedef struct
{
	uint64		start;
	uint64		end;
	uint32		bytes;
	uint32		padding;
} RecordHead;

static shmem_startup_hook_type hook_before = NULL;

/* A request that takes longer ends the process: a hostile record may have a routine wait for itself. */
static int	request_seconds;

static const RelationFiles stand_in = MAKE_FILES(DEFAULTTABLESPACE_OID, 5, 16384);
static SMgrRelation stand_in_files;
static bool init_fork_used = false;
static PGAlignedBlock newest_page;
static XLogReaderState *reader;
static MemoryContext request_context;

/* ---- input and output, both buffered: many small requests cost few system calls */

static char input[256 * 1024];
static size_t input_from = 0,
			input_to = 0;
static char output[256 * 1024];
static size_t output_to = 0;

static void limit_time(int seconds);

static void
flush_output(void)
{
	size_t		sent = 0;

	while (sent < output_to)
	{
		ssize_t		wrote = write(STDOUT_FILENO, output + sent, output_to - sent);

		if (wrote > 0)
			sent += wrote;
		else if (errno != EINTR)
			_exit(0);
	}
	output_to = 0;
}

static void
put_output(const void *bytes, size_t len)
{
	const char *from = bytes;

	while (len > 0)
	{
		size_t		part = Min(len, sizeof output - output_to);

		memcpy(output + output_to, from, part);
		output_to += part;
		from += part;
		len -= part;
		if (output_to == sizeof output)
			flush_output();
	}
}

static void
get_input(void *bytes, size_t len)
{
	char	   *to = bytes;

	while (len > 0)
	{
		size_t		part;

		if (input_from == input_to)
		{
			ssize_t		got;

			/* Whoever sends the rest may be waiting for these. */
			flush_output();
			limit_time(0);
			got = read(STDIN_FILENO, input, sizeof input);
			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				_exit(0);
			input_from = 0;
			input_to = got;
		}
		part = Min(len, input_to - input_from);
		memcpy(to, input + input_from, part);
		input_from += part;
		to += part;
		len -= part;
	}
}

static void
answer(uint8 status, const void *bytes, size_t len)
{
	uint32		total = 1 + len;

	put_output(&total, sizeof total);
	put_output(&status, 1);
	put_output(bytes, len);
}

/* ---- pages in the buffer pool */

/* Puts a page there; NULL: an empty one. */
static void
put_page(ForkNumber fork, BlockNumber block, const char *page)
{
	Buffer		buffer = ReadBufferWithoutRelcache(stand_in, fork, block, RBM_ZERO_AND_LOCK, NULL, true);

	if (fork == INIT_FORKNUM)
		init_fork_used = true;
	if (page)
		memcpy(BufferGetPage(buffer), page, BLCKSZ);
	UnlockReleaseBuffer(buffer);
}

static void
get_page(ForkNumber fork, BlockNumber block, char *page)
{
	Buffer		buffer = ReadBufferWithoutRelcache(stand_in, fork, block, RBM_NORMAL, NULL, true);

	memcpy(page, BufferGetPage(buffer), BLCKSZ);
	ReleaseBuffer(buffer);
}

/* Forgets all pages. Postgres 15 has room for three forks in a call. */
static void
drop_pages(void)
{
	ForkNumber	forks[] = {MAIN_FORKNUM, FSM_FORKNUM, VISIBILITYMAP_FORKNUM, INIT_FORKNUM};
	BlockNumber from[] = {0, 0, 0, 0};

	DROP_BUFFERS(stand_in_files, forks, 3, from);
	if (init_fork_used)
		DROP_BUFFERS(stand_in_files, forks + 3, 1, from + 3);
	init_fork_used = false;
}

/* The block of the free space map that has a heap block's slot: behind those of the two levels above it. */
static BlockNumber
free_space_block(BlockNumber heap_block)
{
	BlockNumber block = 0,
				leaf = heap_block / FREE_SPACE_SLOTS;

	for (int level = 0; level < 3; level++)
	{
		block += leaf + 1;
		leaf /= FREE_SPACE_SLOTS;
	}
	return block - 1;
}

/* Replays a record on the page of this fork and block. */
static void
apply(const char *bytes, XLogRecPtr start, XLogRecPtr end, const Request *request, char *page)
{
	XLogRecord *record = (XLogRecord *) bytes;
	DecodedXLogRecord *decoded = palloc(DecodeXLogRecordRequiredSpace(record->xl_tot_len));
	bool		is_heap = record->xl_rmid == RM_HEAP_ID || record->xl_rmid == RM_HEAP2_ID;
	char	   *why = NULL;

	reader->ReadRecPtr = start;
	reader->EndRecPtr = end;
	if (!DecodeXLogRecord(reader, decoded, record, start, &why))
		elog(ERROR, "the record cannot be decoded: %s", why ? why : "no reason given");
	decoded->next_lsn = end;
	reader->record = decoded;

	put_page(request->fork, request->block, page);
	for (int i = 0; i <= decoded->max_block_id; i++)
	{
		DecodedBkpBlock *block = &decoded->blocks[i];
		bool		is_target;

		if (!block->in_use)
			continue;
		is_target = memcmp(&FILES_OF(block), &request->relation, sizeof(RelationFiles)) == 0 &&
			block->forknum == request->fork && block->blkno == request->block;
		/*
		 * Blocks of other relations may have the target's number: none of Postgres's records has two relations, so that
		 * is no target either.
		 */
		FILES_OF(block) = stand_in;
		block->prefetch_buffer = InvalidBuffer;
		if (!is_target && block->forknum == request->fork && block->blkno == request->block &&
			!(is_heap && request->fork == VISIBILITYMAP_FORKNUM))
			elog(ERROR, "the record refers to two relations");
		if (!is_target && !(block->flags & BKPBLOCK_WILL_INIT))
			put_page(block->forknum, block->blkno, newest_page.data);
		/* Records of heaps change pages of both maps that they do not refer to. */
		if (is_heap && block->forknum == MAIN_FORKNUM)
		{
			BlockNumber map = block->blkno / HEAP_BLOCKS_PER_MAP;

			if (!(request->fork == VISIBILITYMAP_FORKNUM && request->block == map))
				put_page(VISIBILITYMAP_FORKNUM, map, newest_page.data);
			put_page(FSM_FORKNUM, free_space_block(block->blkno), NULL);
		}
	}
	if (!RmgrIdIsValid(record->xl_rmid))
		elog(ERROR, "resource manager %u does not exist", record->xl_rmid);
	GetRmgr(record->xl_rmid).rm_redo(reader);
	get_page(request->fork, request->block, page);
	drop_pages();
}

/* ---- requests */

static void
handle(char *body, size_t len)
{
	Request		request;
	static PGAlignedBlock page;
	char	   *at = body + sizeof request;
	char	   *end = body + len;

	if (len < sizeof request)
		elog(ERROR, "the request is cut");
	memcpy(&request, body, sizeof request);
	if (request.fork > INIT_FORKNUM)
		elog(ERROR, "there is no fork %u", request.fork);
	if (request.has_page)
	{
		if (end - at < BLCKSZ)
			elog(ERROR, "the request's page is cut");
		memcpy(page.data, at, BLCKSZ);
		at += BLCKSZ;
	}
	else
		MemSet(page.data, 0, BLCKSZ);

	if (request.op == OP_MASK)
	{
		if (!RmgrIdIsValid(request.rmgr))
			elog(ERROR, "resource manager %u does not exist", request.rmgr);
		if (GetRmgr(request.rmgr).rm_mask)
			GetRmgr(request.rmgr).rm_mask(page.data, request.block);
	}
	else if (request.op == OP_APPLY)
	{
		for (uint32 i = 0; i < request.records; i++)
		{
			RecordHead	head;
			char	   *aligned;

			if (end - at < (ptrdiff_t) sizeof head)
				elog(ERROR, "the request's records are cut");
			memcpy(&head, at, sizeof head);
			at += sizeof head;
			if (head.bytes < SizeOfXLogRecord || end - at < (ptrdiff_t) head.bytes)
				elog(ERROR, "a record of the request is cut");
			aligned = palloc(head.bytes);
			memcpy(aligned, at, head.bytes);
			if (((XLogRecord *) aligned)->xl_tot_len != head.bytes)
				elog(ERROR, "a record has another length than it says");
			apply(aligned, head.start, head.end, &request, page.data);
			at += head.bytes;
		}
	}
	else
		elog(ERROR, "there is no operation %u", request.op);
	answer(DONE, page.data, BLCKSZ);
}

/* ---- the process */

#define ALLOW(name) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* With a first argument of at most 2: standard input, output and error. */
#define ALLOW_STANDARD(name) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 4), \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), \
	BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 2, 1, 0), \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the filter of system calls is written for x86-64 and arm64"
#endif

static void
confine(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW_STANDARD(read),
		ALLOW_STANDARD(write),
		ALLOW(mmap),
		ALLOW(munmap),
		ALLOW(mremap),
		ALLOW(madvise),
		ALLOW(brk),
		ALLOW(futex),
		ALLOW(setitimer),
		ALLOW(clock_gettime),
		ALLOW(rt_sigreturn),
		ALLOW(restart_syscall),
		ALLOW(exit),
		ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {.len = lengthof(filter), .filter = filter};
	struct rlimit none = {0, 0};
	struct rlimit memory = {2UL << 30, 2UL << 30};

	if (setrlimit(RLIMIT_CORE, &none) != 0 || setrlimit(RLIMIT_AS, &memory) != 0 ||
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		elog(FATAL, "the redo process cannot be confined: %m");
}

/* The process ends after so many seconds, unless this is called again; 0: it does not. */
static void
limit_time(int seconds)
{
	struct itimerval limit = {.it_value = {.tv_sec = seconds}};

	setitimer(ITIMER_REAL, &limit, NULL);
}

static void
serve(void)
{
	sigset_t	alarm;

	PageInit((Page) newest_page.data, BLCKSZ, 0);
	PageSetLSN((Page) newest_page.data, PG_UINT64_MAX);
	stand_in_files = smgropen(stand_in, NO_BACKEND);
	for (int fork = 0; fork <= INIT_FORKNUM; fork++)
	{
		smgrcreate(stand_in_files, fork, true);
		stand_in_files->smgr_cached_nblocks[fork] = MaxBlockNumber;
	}
	reader = XLogReaderAllocate(wal_segment_size, NULL, XL_ROUTINE(.page_read = NULL), NULL);
	if (reader == NULL)
		elog(FATAL, "out of memory");
	request_context = AllocSetContextCreate(TopMemoryContext, "request", ALLOCSET_DEFAULT_SIZES);
	/* Postgres has it blocked at this point of its start. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	signal(SIGALRM, SIG_DFL);
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
	confine();
	answer(DONE, PG_VERSION_STR, strlen(PG_VERSION_STR));
	for (;;)
	{
		uint32		len;
		char	   *body;

		get_input(&len, sizeof len);
		if (len > REQUEST_MAX)
			_exit(1);
		MemoryContextReset(request_context);
		MemoryContextSwitchTo(request_context);
		body = palloc_extended(len + 1, MCXT_ALLOC_HUGE);
		get_input(body, len);
		limit_time(request_seconds);
		PG_TRY();
		{
			handle(body, len);
		}
		PG_CATCH();
		{
			ErrorData  *error;

			/* Locks, pins and pages are as the routine has left them: the process cannot go on. */
			MemoryContextSwitchTo(request_context);
			error = CopyErrorData();
			answer(FAILED, error->message, strlen(error->message));
			flush_output();
			_exit(1);
		}
		PG_END_TRY();
	}
}

static void
on_shared_memory(void)
{
	if (hook_before)
		hook_before();
	InitProcess();
	BaseInit();
	SetProcessingMode(NormalProcessing);
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "redo");
	InRecovery = true;
	RmgrStartup();
	serve();
}

void
_PG_init(void)
{
	const char *seconds = getenv("THALWEG_REDO_SECONDS");

	/* An ordinary server that loads this is none. */
	if (seconds == NULL)
		return;
	request_seconds = Max(atoi(seconds), 1);
	hook_before = shmem_startup_hook;
	shmem_startup_hook = on_shared_memory;
}
