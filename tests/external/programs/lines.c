/*
 * Looks up lines with elfutils' libdw like perf since 7.0 (libdw__addr2line in tools/perf/util/libdw.c): looks up the
 * address before it adds the bias of the module.
 *
 * Usage: lines OBJECT < LIST. A line of LIST is an address in the object (hexadecimal).
 * Prints file and line for each address, or "?".
 */
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	static const Dwfl_Callbacks callbacks = {
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.section_address = dwfl_offline_section_address,
		.find_elf = dwfl_build_id_find_elf,
	};
	Dwfl *dwfl = dwfl_begin(&callbacks);
	GElf_Addr address;

	if (argc != 2 || !dwfl_report_offline(dwfl, argv[1], argv[1], open(argv[1], O_RDONLY)))
		return 1;
	dwfl_report_end(dwfl, NULL, NULL);
	while (scanf("%lx", &address) == 1) {
		Dwfl_Module *module = dwfl_addrmodule(dwfl, address);
		Dwarf_Addr bias;
		Dwfl_Line *line = NULL;
		const char *file;
		int number;

		if (module && dwfl_module_getdwarf(module, &bias))
			line = dwfl_module_getsrc(module, address + bias);
		file = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
		if (file)
			printf("%s:%d\n", file, number);
		else
			puts("?");
	}
	dwfl_end(dwfl);
	return 0;
}
