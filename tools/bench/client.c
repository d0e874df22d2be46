/* A load generator: clients in a closed loop, all in one process, each with one call under way.
 *
 *   client KEY=VALUE...
 *     unix=PATH | tcp=PORT   where the server listens (TCP on the loopback)
 *     http=0|1               answers are HTTP responses, not frames
 *     request=FILE           the bytes of every call, its header included
 *     expect=FILE            the answer that must come (of an HTTP response the body); optional
 *     connections=N active=N seconds=S warmup=S calls=N
 *
 * It prints a line of JSON: calls, seconds, p50_us, p99_us, and errors, which are answers other
 * than expected.  With calls=N it makes so many instead of stopping after some seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PER_OCTAVE = 256, BUCKETS = PER_OCTAVE * 40, EVENTS = 256, FIRST_ROOM = 1 << 16 };

typedef struct {
    int fd;
    uint64_t start;
    size_t sent, received; /* bytes of the call and of its answer */
    size_t total, head;    /* bytes of the whole answer, 0 while unknown, and before its body */
    size_t room;
    char *answer;
} Client;

static const char *unix_path;
static int tcp_port, http, flags, poller = -1;
static char *request, *expected;
static size_t request_size, expected_size;
static uint64_t histogram[BUCKETS], calls, errors;

static void fail(const char *what) {
    fprintf(stderr, "client: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 1);
    if (!data || fread(data, 1, *size, file) != *size) fail(path);
    fclose(file);
    return data;
}

/* Buckets are 1/256 of their octave wide: a percentile is within 0.4 %. */
static void count_latency(uint64_t ns) {
    int octave = 63 - 8 - __builtin_clzll(ns | PER_OCTAVE);
    uint64_t place = (uint64_t)octave * PER_OCTAVE + (ns >> octave);
    histogram[place < BUCKETS ? place : BUCKETS - 1]++;
}

static double percentile_us(double part) {
    uint64_t all = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++) all += histogram[i];
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen && (double)seen >= part * (double)all) {
            int octave = i < 2 * PER_OCTAVE ? 0 : i / PER_OCTAVE - 1;
            return (double)((uint64_t)(i - octave * PER_OCTAVE) << octave) / 1000;
        }
    }
    return 0;
}

static void wait_for(Client *client, uint32_t events, int operation) {
    struct epoll_event event = {.events = events, .data.ptr = client};
    if (poller >= 0 && epoll_ctl(poller, operation, client->fd, &event)) fail("epoll_ctl");
}

static void send_on(Client *client) {
    int was_stuck = client->sent != 0;
    while (client->sent < request_size) {
        ssize_t n = send(client->fd, request + client->sent, request_size - client->sent,
                         MSG_NOSIGNAL | flags);
        if (n < 0 && errno == EAGAIN) {
            if (!was_stuck) wait_for(client, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            return;
        }
        if (n < 0) fail("send");
        client->sent += (size_t)n;
    }
    if (was_stuck) wait_for(client, EPOLLIN, EPOLL_CTL_MOD);
}

static void begin_call(Client *client) {
    client->sent = client->received = client->total = 0;
    client->start = now();
    send_on(client);
}

/* The length of the answer, from its header, once that has come. */
static void read_header(Client *client) {
    if (!http) {
        uint64_t length;
        if (client->received < sizeof length) return;
        memcpy(&length, client->answer, sizeof length);
        client->total = sizeof length + length;
        client->head = 0;
        return;
    }
    client->answer[client->received] = 0;
    char *end = strstr(client->answer, "\r\n\r\n");
    if (!end) return;
    char *length = strcasestr(client->answer, "\r\ncontent-length:");
    if (!length || length > end) fail("a response without its length");
    client->head = (size_t)(end + 4 - client->answer);
    client->total = client->head + strtoull(length + 17, NULL, 10);
    if (strncmp(client->answer, "HTTP/1.1 200", 12)) errors++;
}

/* Reads what has come; true when the answer is complete. */
static int receive(Client *client) {
    for (;;) {
        if (client->received + 1 >= client->room || client->total >= client->room) {
            size_t wanted = client->total ? client->total + 2 : 2 * client->room;
            client->room = wanted > FIRST_ROOM ? wanted : FIRST_ROOM;
            client->answer = realloc(client->answer, client->room);
            if (!client->answer) fail("memory");
        }
        ssize_t n = recv(client->fd, client->answer + client->received,
                         client->room - client->received - 1, flags);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n < 0) fail("recv");
        errno = 0;
        if (n == 0) fail("the server closed a connection");
        client->received += (size_t)n;
        if (!client->total) read_header(client);
        if (client->total && client->received >= client->total) return 1;
    }
}

/* Counts an answer that is not what was expected. */
static void check(const Client *client) {
    size_t body = client->total - client->head;
    if (expected && (body != expected_size ||
                     memcmp(client->answer + client->head, expected, body)))
        errors++;
}

static void open_connection(Client *client) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in remote = {.sin_family = AF_INET, .sin_port = htons((uint16_t)tcp_port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client->fd = socket(unix_path ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    if (client->fd < 0) fail("socket");
    if (unix_path) {
        strncpy(local.sun_path, unix_path, sizeof local.sun_path - 1);
        if (connect(client->fd, (struct sockaddr *)&local, sizeof local)) fail(unix_path);
    } else {
        int yes = 1;
        if (connect(client->fd, (struct sockaddr *)&remote, sizeof remote)) fail("connect");
        setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    if (!http) {
        uint64_t length;
        char text[4096];
        if (recv(client->fd, &length, sizeof length, MSG_WAITALL) != sizeof length)
            fail("no greeting");
        while (length) {
            ssize_t n = recv(client->fd, text, length < sizeof text ? length : sizeof text, 0);
            if (n <= 0) fail("half a greeting");
            length -= (uint64_t)n;
        }
    }
}

int main(int count, char **arguments) {
    int connections = 1, active = 0;
    double seconds = 1, warmup = 0.2;
    uint64_t limit = 0;
    for (int i = 1; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) fail(arguments[i]);
        *value++ = 0;
        const char *key = arguments[i];
        if (!strcmp(key, "unix")) unix_path = value;
        else if (!strcmp(key, "tcp")) tcp_port = atoi(value);
        else if (!strcmp(key, "http")) http = atoi(value);
        else if (!strcmp(key, "request")) request = read_file(value, &request_size);
        else if (!strcmp(key, "expect")) expected = read_file(value, &expected_size);
        else if (!strcmp(key, "connections")) connections = atoi(value);
        else if (!strcmp(key, "active")) active = atoi(value);
        else if (!strcmp(key, "seconds")) seconds = atof(value);
        else if (!strcmp(key, "warmup")) warmup = atof(value);
        else if (!strcmp(key, "calls")) limit = strtoull(value, NULL, 10);
        else fail(key);
    }
    if (!request || connections < 1) fail("request= is needed");
    if (active < 1 || active > connections) active = connections;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    Client *clients = calloc((size_t)connections, sizeof *clients);
    for (int i = 0; i < connections; i++) open_connection(clients + i);
    /* A single client waits in its read, as a program with one connection does. */
    if (active > 1) {
        flags = MSG_DONTWAIT;
        poller = epoll_create1(0);
        for (int i = 0; i < active; i++) wait_for(clients + i, EPOLLIN, EPOLL_CTL_ADD);
    }
    uint64_t from = now() + (uint64_t)(limit ? 0 : warmup * 1e9), time = from;
    uint64_t until = limit ? UINT64_MAX : from + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < active; i++) begin_call(clients + i);
    struct epoll_event ready[EVENTS] = {{.events = EPOLLIN, .data.ptr = clients}};
    while (time < until && (!limit || calls < limit)) {
        int some = active > 1 ? epoll_wait(poller, ready, EVENTS, -1) : 1;
        for (int i = 0; i < some; i++) {
            Client *client = ready[i].data.ptr;
            if (ready[i].events & EPOLLOUT) send_on(client);
            if (!(ready[i].events & ~EPOLLOUT) || !receive(client)) continue;
            time = now();
            check(client);
            if (time >= from && (limit || time < until)) {
                count_latency(time - client->start);
                calls++;
            }
            begin_call(client);
        }
    }
    double took = (double)(time - from) / 1e9;
    printf("{\"calls\": %llu, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, "
           "\"errors\": %llu}\n",
           (unsigned long long)calls, took, percentile_us(0.5), percentile_us(0.99),
           (unsigned long long)errors);
    return 0;
}
