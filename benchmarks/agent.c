/* A fake agent that costs next to nothing, so that what is measured is what stands before it.
 *
 * It is steered by a directive in the prompt, all parts optional:
 *
 *     [[bench deltas=200 bytes=8 pace_us=0 thinking=0 boot_ms=0]]
 *
 * `bytes` is the length of each delta's text. With `pace_us` every delta is a write of its own; without
 * it the deltas come as fast as the pipe takes them. `boot_ms` counts from the start of the process, so
 * an agent that was started earlier has booted when its prompt arrives.
 *
 * The answer is made twice more at its end, as the CLI does it: once as the turn's closing repetition,
 * once in `result`. It is made anew each time and never kept, so an answer may have any size.
 */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ASSISTANT "{\"type\":\"assistant\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\""

/* `"session_id":"..."`, which is the one of `--resume` or one that no other process has. */
static char session[160];

static char buffer[1 << 16];
static size_t filled;

static void flush(void) {
    for (size_t sent = 0; sent < filled;) {
        ssize_t n = write(1, buffer + sent, filled - sent);
        if (n < 0)
            exit(1);
        sent += (size_t)n;
    }
    filled = 0;
}

static void put(const char *data, size_t size) {
    while (size) {
        if (filled == sizeof buffer)
            flush();
        size_t room = sizeof buffer - filled, part = size < room ? size : room;
        memcpy(buffer + filled, data, part);
        filled += part, data += part, size -= part;
    }
}

static void say(const char *text) { put(text, strlen(text)); }

/* The end of an event of the stream; each is of another moment, as no two of a real agent are equal. */
static void say_stamp(void) {
    static long now = 1787030681469;
    static char stamp[64];
    say(session);
    put(stamp, (size_t)snprintf(stamp, sizeof stamp, ",\"timestamp_ms\":%ld}\n", now++));
}

static void say_escaped(const char *text, size_t size) {
    char escape[8];
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= ' ' && c != '"' && c != '\\')
            put(text + i, 1);
        else
            put(escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
    }
}

static void say_token(long number, size_t bytes) {
    static char token[1 << 16];
    size_t size = (size_t)snprintf(token, sizeof token, "token%ld ", number);
    if (bytes >= sizeof token)
        bytes = sizeof token - 1;
    if (size < bytes) {
        memset(token + size, 'x', bytes - size);
        size = bytes;
    }
    put(token, size);
}

static void say_answer(long deltas, size_t bytes) {
    for (long i = 0; i < deltas; i++)
        say_token(i, bytes);
}

static char *read_prompt(size_t *size) {
    size_t room = 1 << 16;
    char *prompt = malloc(room);
    *size = 0;
    for (ssize_t n; (n = read(0, prompt + *size, room - *size - 1)) > 0;) {
        *size += (size_t)n;
        if (*size == room - 1)
            prompt = realloc(prompt, room *= 2);
    }
    prompt[*size] = 0;
    return prompt;
}

static const char *last_directive(const char *prompt) {
    const char *found = "";
    for (const char *at = prompt; (at = strstr(at, "[[bench")); at++)
        found = at;
    return found;
}

static long option(const char *directive, const char *name, long otherwise) {
    const char *end = strstr(directive, "]]"), *at = strstr(directive, name);
    return at && end && at < end ? atol(at + strlen(name)) : otherwise;
}

static void wait_until_booted(const struct timespec *start, long milliseconds) {
    struct timespec until = *start;
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000)
        until.tv_sec++, until.tv_nsec -= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void answer(const struct timespec *start) {
    size_t size;
    char *prompt = read_prompt(&size);
    const char *directive = last_directive(prompt);
    long deltas = option(directive, " deltas=", 1), thinking = option(directive, " thinking=", 0);
    long pace = option(directive, " pace_us=", 0), boot = option(directive, " boot_ms=", 0);
    size_t bytes = (size_t)option(directive, " bytes=", 8);

    wait_until_booted(start, boot);
    say("{\"type\":\"system\",\"subtype\":\"init\",\"apiKeySource\":\"login\",\"cwd\":\"/\",");
    say(session);
    say(",\"model\":\"Auto\",\"permissionMode\":\"default\"}\n");
    say("{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"");
    say_escaped(prompt, size);
    say("\"}]},");
    say(session);
    say("}\n");
    flush();
    for (long i = 0; i < thinking; i++) {
        say("{\"type\":\"thinking\",\"subtype\":\"delta\",\"text\":\"Let me think. \",");
        say_stamp();
    }
    if (thinking) {
        say("{\"type\":\"thinking\",\"subtype\":\"completed\",");
        say_stamp();
    }
    for (long i = 0; i < deltas; i++) {
        say(ASSISTANT);
        say_token(i, bytes);
        say("\"}]},");
        say_stamp();
        if (pace) {
            flush();
            usleep((useconds_t)pace);
        }
    }
    if (deltas) {
        say(ASSISTANT);
        say_answer(deltas, bytes);
        say("\"}]},");
        say(session);
        say("}\n");
    }
    say("{\"type\":\"result\",\"subtype\":\"success\",\"duration_ms\":1,\"duration_api_ms\":1,"
        "\"is_error\":false,\"result\":\"");
    say_answer(deltas, bytes);
    say("\",");
    say(session);
    say(",\"request_id\":\"59ff\",\"usage\":{\"inputTokens\":1,\"outputTokens\":1,"
        "\"cacheReadTokens\":0,\"cacheWriteTokens\":0}}\n");
}

static void begin_session(int count, char **words) {
    const char *form = "\"session_id\":\"%s\"";
    char fresh[64];
    snprintf(fresh, sizeof fresh, "6f0c2f1e-8f0e-4b53-9f6e-%012d", (int)getpid());
    snprintf(session, sizeof session, form, fresh);
    for (int i = 1; i + 1 < count; i++)
        if (!strcmp(words[i], "--resume"))
            snprintf(session, sizeof session, form, words[i + 1]);
}

int main(int count, char **words) {
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const char *command = count > 1 ? words[1] : "";
    if (!strcmp(command, "--version"))
        say("2026.09.15-d2fe57e\n");
    else if (!strcmp(command, "status"))
        say("{\"status\":\"authenticated\",\"isAuthenticated\":true,\"hasAccessToken\":true,"
            "\"hasRefreshToken\":true,\"userInfo\":{\"email\":\"bench@example.com\"}}\n");
    else if (!strcmp(command, "models"))
        say("Available models\n\nauto - Auto (default)\n\nTip: use --model <id> (or /model <id> in "
            "interactive mode) to switch.\n");
    else {
        begin_session(count, words);
        answer(&start);
    }
    flush();
    return 0;
}
