use super::*;

const CALLED: Option<FramelessTop> = pushed(0, None, 0);

const fn pushed(offset: u32, frame_pointer: Option<u32>, removed: u16) -> Option<FramelessTop> {
    Some(FramelessTop::ReturnAddress {
        offset,
        frame_pointer,
        removed,
    })
}

const fn in_register(register: u16) -> Option<FramelessTop> {
    Some(FramelessTop::Register { register, offset: 0 })
}

fn tops_at(code: &[u8], offsets: &[usize]) -> Vec<Option<FramelessTop>> {
    let found = tops(code, None);
    offsets.iter().map(|&offset| found.at(offset)).collect()
}

#[test]
fn what_is_on_top_is_known_at_each_instruction_of_a_prologue_and_an_epilogue() {
    // nop; push rbp; mov rbp, rsp; pop rbp; ret
    let code = [0x90, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3];
    assert_eq!(
        tops_at(&code, &[0, 1, 2, 5, 6]),
        [CALLED, CALLED, pushed(8, Some(0), 0), None, CALLED]
    );
    // push rbp; push rbx; lea rbp, [rsp+8]; sub rsp, 16; add rsp, 16; pop rbx; pop rbp; ret (.NET)
    let code = [
        0x55, 0x53, 0x48, 0x8d, 0x6c, 0x24, 0x08, 0x48, 0x83, 0xec, 0x10, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0x5d,
        0xc3,
    ];
    assert_eq!(
        tops_at(&code, &[1, 2, 7, 15, 16, 17]),
        [
            pushed(8, Some(0), 0),
            pushed(16, Some(8), 0),
            None,
            None,
            None,
            CALLED
        ]
    );
}

#[test]
fn functions_without_a_frame_have_their_depth() {
    // push rbp; sub rsp, 16; xor ebp, ebp; call; add rsp, 16; pop rbp; ret
    let code = [
        0x55, 0x48, 0x83, 0xec, 0x10, 0x31, 0xed, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3,
    ];
    let deep = pushed(24, Some(16), 0);
    assert_eq!(
        tops_at(&code, &[1, 5, 7, 12, 16, 17]),
        [
            pushed(8, Some(0), 0),
            deep,
            deep,
            deep,
            pushed(8, Some(0), 0),
            CALLED
        ]
    );
    let found = tops(&code, None);
    assert!(!found.has_frame);
    // Not known: xor ebp, ebp without a push; sub rsp, rax; and rsp, -64; pop rsp; leave
    for code in [
        &[0x31, 0xed, 0x90][..],
        &[0x48, 0x29, 0xc4, 0x90],
        &[0x48, 0x83, 0xe4, 0xc0, 0x90],
        &[0x5c, 0x90],
        &[0xc9, 0x90],
    ] {
        let found = tops(code, None);
        assert!(!found.has_frame, "{code:x?}");
        assert_eq!(found.at(0), CALLED, "{code:x?}");
        assert_eq!(found.at(code.len() - 1), None, "{code:x?}");
    }
}

#[test]
fn functions_without_a_frame_have_up_to_64_kibibytes_on_the_stack() {
    // sub rsp, SIZE; nop
    let code = |size: u32| [&[0x48, 0x81, 0xec][..], &size.to_le_bytes(), &[0x90]].concat();
    let at_end = |size| tops(&code(size), None).at(7);
    assert_eq!(at_end(1 << 16), pushed(1 << 16, None, 0));
    assert_eq!(at_end((1 << 16) + 8), None);
}

#[test]
fn a_frame_is_removed_before_a_jump_to_another_function() {
    // push rbp; mov rbp, rsp; pop rbp; movabs rax, imm64; jmp rax
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x5d, 0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xe0,
    ];
    assert_eq!(tops_at(&code, &[4, 5, 15]), [None, CALLED, CALLED]);
    // push rbp; mov rbp, rsp; leave; jmp rel32
    let code = [0x55, 0x48, 0x89, 0xe5, 0xc9, 0xe9, 0, 1, 0, 0];
    assert_eq!(tops_at(&code, &[4, 5]), [None, CALLED]);
}

/// V8's built-in functions (Node.js 20, `--always-sparkplug`).
#[test]
fn a_frame_is_removed_in_parts_before_a_jump_to_another_function() {
    // push rbp; mov rbp, rsp; push 0x22; call rax; mov rbp, [rbp]; mov rdi, rax; add rsp, 16; jmp rcx
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x6a, 0x22, 0xff, 0xd0, 0x48, 0x8b, 0x6d, 0x00, 0x48, 0x89, 0xc7, 0x48, 0x83,
        0xc4, 0x10, 0xff, 0xe1,
    ];
    let restored = pushed(16, None, 0);
    assert_eq!(
        tops_at(&code, &[4, 8, 12, 15, 19]),
        [None, None, restored, restored, CALLED]
    );
    // mov rbp, [rbp]; add rsp, 24; push rdx; push [rsp + 8]; jmp rcx
    let copied = [
        &code[..12],
        &[0x48, 0x83, 0xc4, 0x18, 0x52, 0xff, 0x74, 0x24, 0x08, 0xff, 0xe1],
    ]
    .concat();
    assert_eq!(
        tops_at(&copied, &[12, 16, 17, 21]),
        [pushed(24, None, 0), CALLED, pushed(8, None, 0), CALLED]
    );
    // mov rbp, [rbp]; add rsp, 16; ret, and another function: pop rax; jmp rcx
    let returns = [&code[..12], &[0x48, 0x83, 0xc4, 0x10, 0xc3, 0x58, 0xff, 0xe1]].concat();
    assert_eq!(tops_at(&returns, &[12, 16]), [restored, CALLED]);
    // Not known: mov rbp, [rbp]; and rsp, -64, or int3; jmp rcx, or 17 instructions before the jump
    let start = &code[..12];
    let jump = [0xff, 0xe1];
    for (more, top) in [
        (&[0x48, 0x83, 0xe4, 0xc0][..], None),
        (&[0xcc], None),
        (&[0x90; 15], CALLED),
        (&[0x90; 16], None),
    ] {
        let code = [start, more, &jump].concat();
        assert_eq!(tops_at(&code, &[12]), [top], "{more:x?}");
    }
}

#[test]
fn a_copy_of_the_return_address_is_on_top_after_arguments_were_added() {
    // push r11; push rdx; push [rsp + 16]; mov [rsp + 24], rbx; jmp rcx
    let code = [
        0x41, 0x53, 0x52, 0xff, 0x74, 0x24, 0x10, 0x48, 0x89, 0x5c, 0x24, 0x18, 0xff, 0xe1,
    ];
    assert_eq!(
        tops_at(&code, &[2, 3, 7, 12]),
        [pushed(8, None, 0), pushed(16, None, 0), CALLED, CALLED]
    );
    // push [rsp + 8] is of something else.
    assert_eq!(
        tops_at(&[0xff, 0x74, 0x24, 0x08, 0x90], &[4]),
        [pushed(8, None, 0)]
    );
}

#[test]
fn what_is_known_from_one_side_holds_where_two_ways_meet() {
    // je on; sub rsp, rax; je on; ret; on: nop
    let code = [0x74, 0x06, 0x48, 0x29, 0xc4, 0x74, 0x01, 0xc3, 0x90];
    assert_eq!(tops_at(&code, &[2, 5, 7, 8]), [CALLED, None, None, CALLED]);
    // je on; push rax; je on; ret; on: nop
    let code = [0x74, 0x04, 0x50, 0x74, 0x01, 0xc3, 0x90];
    assert_eq!(tops_at(&code, &[2, 3, 6]), [CALLED, pushed(8, None, 0), None]);
    // je on; push rax; je on; pop rax; je on; ret; on: nop
    let code = [0x74, 0x07, 0x50, 0x74, 0x04, 0x58, 0x74, 0x01, 0xc3, 0x90];
    assert_eq!(tops_at(&code, &[3, 6, 9]), [pushed(8, None, 0), CALLED, None]);
}

#[test]
fn rare_paths_have_a_frame_of_their_own() {
    // test eax, eax; je rare; ret; 3 bytes of data; rare: push rbp; mov rbp, rsp; pop rbp; jmp back
    let code = [
        0x85, 0xc0, 0x74, 0x04, 0xc3, 0xc9, 0xc9, 0xc9, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xeb, 0xf1,
    ];
    assert_eq!(
        tops_at(&code, &[0, 4, 5, 8, 9, 12, 13]),
        [CALLED, CALLED, None, CALLED, pushed(8, Some(0), 0), None, CALLED]
    );
}

#[test]
fn code_that_nothing_before_leads_to_is_like_the_code_around_it() {
    // push rbp; mov rbp, rsp; jmp condition; body: nop; condition: je body; pop rbp; ret; pop rbp; ret
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0xeb, 0x01, 0x90, 0x74, 0xfd, 0x5d, 0xc3, 0x5d, 0xc3,
    ];
    assert_eq!(
        tops_at(&code, &[6, 7, 10, 11, 12]),
        [None, None, CALLED, None, CALLED]
    );
    // What is certain wins: push rbp; mov rbp, rsp; je on; pop rbp; jmp on + 1; on: nop; nop
    let code = [0x55, 0x48, 0x89, 0xe5, 0x74, 0x03, 0x5d, 0xeb, 0x01, 0x90, 0x90];
    assert_eq!(tops_at(&code, &[7, 9, 10]), [CALLED, None, None]);
}

#[test]
fn what_is_on_top_is_known_at_each_instruction_of_a_return() {
    assert_eq!(tops_at(&[0xc2, 0x08, 0x01], &[0]), [pushed(0, None, 0x108)]);
    // V8 removes its arguments, of which there may be more than a function has parameters (capture node20): push rbp; mov rbp,
    // rsp; mov rsp, rbp; pop rbp; cmp rcx, 3; jg +3; ret 24; pop r10; lea rsp, [rsp + 8 * rcx]; push r10; ret
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xec, 0x5d, 0x48, 0x83, 0xf9, 0x03, 0x7f, 0x03, 0xc2, 0x18, 0x00,
        0x41, 0x5a, 0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3,
    ];
    let r10 = in_register(10);
    assert_eq!(
        tops_at(&code, &[4, 7, 8, 12, 14, 17, 19, 23, 25]),
        [
            None,
            None,
            CALLED,
            CALLED,
            pushed(0, None, 24),
            CALLED,
            r10,
            r10,
            CALLED
        ]
    );
    // Its interpreter does so in another way: push rbp; mov rbp, rsp; leave; pop rcx; add rsp, rbx; push rcx; ret
    for add in [[0x48, 0x03, 0xe3], [0x48, 0x01, 0xdc]] {
        let code = [&[0x55, 0x48, 0x89, 0xe5, 0xc9, 0x59][..], &add, &[0x51, 0xc3]].concat();
        let rcx = in_register(2);
        assert_eq!(
            tops_at(&code, &[4, 5, 6, 9, 10]),
            [None, CALLED, rcx, rcx, CALLED]
        );
    }
}

#[test]
fn registers_that_no_instruction_writes_are_preserved() {
    let preserved = |code: &[u8]| tops(code, None).preserved;
    // push rbx; cmp r12, rax; ret; then also xor ebx, ebx; pop r15; xchg rax, r13; cpuid; and data
    assert_eq!(preserved(&[0x53, 0x49, 0x39, 0xc4, 0xc3]), PRESERVED);
    assert_eq!(preserved(&[0x31, 0xdb, 0xc3]), 0xf << 12);
    assert_eq!(preserved(&[0x50, 0x41, 0x5f, 0xc3]), PRESERVED & !(1 << 15));
    assert_eq!(preserved(&[0x49, 0x87, 0xc5, 0xc3]), PRESERVED & !(1 << 13));
    assert_eq!(preserved(&[0x0f, 0xa2, 0xc3]), 0xf << 12);
    assert_eq!(preserved(&[0xc3, 0x90]), 0);
}

#[test]
fn calls_end_before_a_return_address() {
    // call rel32; call rax; call [r13 + 8]; nop
    let code = [0xe8, 1, 2, 3, 4, 0xff, 0xd0, 0x41, 0xff, 0x55, 0x08, 0x90];
    let ends: Vec<usize> = (0..=13).filter(|&offset| is_after_call(&code, offset)).collect();
    assert_eq!(ends, [5, 7, 11]);
}

#[test]
fn code_after_1_mebibyte_is_not_decoded() {
    let code = vec![0x90; (1 << 20) + 1];
    let found = tops(&code, None);
    assert_eq!([found.at((1 << 20) - 1), found.at(1 << 20)], [CALLED, None]);
    assert_eq!(tops(&code[1..], None).at(1 << 20), CALLED);
}
