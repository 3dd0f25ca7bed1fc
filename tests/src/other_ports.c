/* Preloaded library that makes a program bind and connect to other ports. PORTS maps them, as in "8080:40001 6379:40002". */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef int call(int, const struct sockaddr *, socklen_t);

static unsigned short mapped(unsigned short port) {
    unsigned from, to;
    for (const char *next = getenv("PORTS"); next && sscanf(next, " %u:%u", &from, &to) == 2; next = strchr(next + 1, ' ')) {
        if (from == port) return to;
    }
    return port;
}

static int with_other_port(const char *name, int socket, const struct sockaddr *address, socklen_t length) {
    call *real = (call *)dlsym(RTLD_NEXT, name);
    if (address->sa_family != AF_INET || length < sizeof(struct sockaddr_in)) return real(socket, address, length);
    struct sockaddr_in other = *(const struct sockaddr_in *)address;
    other.sin_port = htons(mapped(ntohs(other.sin_port)));
    return real(socket, (const struct sockaddr *)&other, sizeof other);
}

int bind(int socket, const struct sockaddr *address, socklen_t length) {
    return with_other_port("bind", socket, address, length);
}

int connect(int socket, const struct sockaddr *address, socklen_t length) {
    return with_other_port("connect", socket, address, length);
}
