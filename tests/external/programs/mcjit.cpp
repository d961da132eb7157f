// A program with LLVM's MCJIT in it: runs the function main of a module, with perf's listener unless there is a second
// argument.
#include <llvm/ExecutionEngine/JITEventListener.h>
#include <llvm/ExecutionEngine/MCJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IRReader/IRReader.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>

int main(int, char **words) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::LLVMContext context;
    llvm::SMDiagnostic error;
    auto module = llvm::parseIRFile(words[1], error, context);
    if (!module) {
        return 99;
    }
    llvm::EngineBuilder builder(std::move(module));
    builder.setEngineKind(llvm::EngineKind::JIT);
    llvm::ExecutionEngine *engine = builder.create();
    if (!words[2]) {
        engine->RegisterJITEventListener(llvm::JITEventListener::createPerfJITEventListener());
    }
    engine->finalizeObject();
    auto run = reinterpret_cast<int (*)()>(engine->getFunctionAddress("main"));
    int status = run();
    delete engine;
    return status;
}
