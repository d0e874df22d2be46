/* The least that a server with a framed Unix socket can do: what an answer costs without a model.
 *
 *   echo PATH REQUEST_BYTES ANSWER_FILE BUSY_NS
 *
 * It waits with epoll, reads a call of so many bytes, keeps its core busy for as long as a model
 * would run, and answers with the bytes of the file.  The time that it is busy makes its client
 * wait as a server's client waits, so that both are woken from the same state.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    size_t call_size = strtoull(arguments[2], NULL, 10), answer_size;
    uint64_t busy = strtoull(arguments[4], NULL, 10);
    FILE *file = fopen(arguments[3], "rb");
    if (!file) fail(arguments[3]);
    fseek(file, 0, SEEK_END);
    answer_size = (size_t)ftell(file);
    rewind(file);
    char *call = malloc(call_size), *answer = malloc(answer_size);
    if (!call || !answer || fread(answer, 1, answer_size, file) != answer_size) fail("memory");

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* Under another name first: who sees its own can connect. */
    snprintf(address.sun_path, sizeof address.sun_path, "%s~", arguments[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), poller = epoll_create1(0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64) ||
        rename(address.sun_path, arguments[1]))
        fail(arguments[1]);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        if (epoll_wait(poller, &event, 1, -1) < 1) continue;
        int fd = event.data.fd;
        if (fd == listener) {
            uint64_t greeting = 0;
            fd = accept(listener, NULL, NULL);
            if (fd < 0 || write(fd, &greeting, sizeof greeting) < 0) continue;
            event.events = EPOLLIN;
            event.data.fd = fd;
            epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
            continue;
        }
        if (recv(fd, call, call_size, MSG_WAITALL) != (ssize_t)call_size) {
            close(fd);
            continue;
        }
        for (uint64_t end = now() + busy; busy && now() < end;) continue;
        for (size_t sent = 0; sent < answer_size;) {
            ssize_t n = send(fd, answer + sent, answer_size - sent, MSG_NOSIGNAL);
            if (n <= 0) break;
            sent += (size_t)n;
        }
    }
}
