/*
 * Looks up addresses in objects with elfutils' libdwfl, like a profiler that unwinds with it: reports each object at its start address in
 * the process, then looks up each address.
 *
 * Usage: modules < LIST. A line of LIST is: file, start address of the object, address to look up (both hexadecimal).
 * Prints for each line: the symbol at the address, and "cfi" or "none", depending on whether the address has an unwinding entry.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct query {
	char file[4096];
	GElf_Addr base, address;
};

int main(void)
{
	static const Dwfl_Callbacks callbacks = {
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.section_address = dwfl_offline_section_address,
		.find_elf = dwfl_linux_proc_find_elf,
	};
	static struct query queries[10000];
	int count = 0;
	Dwfl *dwfl = dwfl_begin(&callbacks);

	while (count < 10000 && scanf("%4095s %lx %lx", queries[count].file, &queries[count].base, &queries[count].address) == 3)
		count++;
	for (int i = 0; i < count; i++) {
		const char *name = strrchr(queries[i].file, '/') + 1;
		if (!dwfl_report_elf(dwfl, name, queries[i].file, -1, queries[i].base, false))
			printf("%s: %s\n", name, dwfl_errmsg(-1));
	}
	dwfl_report_end(dwfl, NULL, NULL);
	for (int i = 0; i < count; i++) {
		GElf_Addr address = queries[i].address;
		Dwfl_Module *module = dwfl_addrmodule(dwfl, address);
		const char *symbol = module ? dwfl_module_addrname(module, address) : NULL;
		Dwarf_Addr bias = 0;
		Dwarf_CFI *cfi = module ? dwfl_module_eh_cfi(module, &bias) : NULL;
		Dwarf_Frame *frame = NULL;
		int found = cfi && !dwarf_cfi_addrframe(cfi, address - bias, &frame);
		printf("%s\t%s\n", symbol ? symbol : "?", found ? "cfi" : "none");
		free(frame);
	}
	dwfl_end(dwfl);
	return 0;
}
