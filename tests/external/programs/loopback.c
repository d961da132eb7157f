/*
 * Preloaded into a server (LD_PRELOAD), makes it listen on the loopback interface only, for which debuginfod 0.188 has no option, and exit
 * together with its parent process.
 */
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int bind(int descriptor, const struct sockaddr *address, socklen_t size)
{
	struct sockaddr_storage local = {0};

	memcpy(&local, address, size < sizeof local ? size : sizeof local);
	if (local.ss_family == AF_INET)
		((struct sockaddr_in *)&local)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (local.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&local)->sin6_addr = in6addr_loopback;
	return syscall(SYS_bind, descriptor, &local, size);
}

__attribute__((constructor)) static void end_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}
