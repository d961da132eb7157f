use super::*;

#[test]
fn a_script_has_up_to_1_mi_functions_and_4_mi_calls() {
    let scan = |text: &str, functions: usize, calls: usize| {
        let mut scanner = Scanner::new(text.as_bytes(), false);
        let function = scanner.functions[0].clone();
        scanner.functions.resize(functions, function);
        scanner.calls = vec![
            NamedCall {
                name: 0..0,
                start: 0,
                function: 0
            };
            calls
        ];
        scanner.add_all()?;
        Some((scanner.functions.len(), scanner.calls.len()))
    };
    assert_eq!(scan("x => x", 1_048_575, 0), Some((1_048_576, 0)));
    assert_eq!(scan("x => x", 1_048_576, 0), None);
    assert_eq!(scan("f()", 1, 4_194_303), Some((1, 4_194_304)));
    assert_eq!(scan("f()", 1, 4_194_304), None);
}
