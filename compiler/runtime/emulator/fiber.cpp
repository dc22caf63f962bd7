// Stacks to switch between: a few instructions on x86-64, ucontext elsewhere.
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "emulator.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tk::emu {
namespace {

size_t page() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Fiber::Fiber(size_t number) {
  // The page below the stack stays without access.
  void *memory = mmap(nullptr, kStackBytes + page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  low_ = reinterpret_cast<uintptr_t>(memory) + page();
  if (mprotect(reinterpret_cast<void *>(low_), kStackBytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(memory, kStackBytes + page());
    throw std::bad_alloc();
  }
  // Stacks that all begin at the start of a page would share a few sets of the caches, and switching would miss them.
  high_ = low_ + kStackBytes - number * 320 % 4096;
}

#if defined(__x86_64__)

extern "C" void tk_emu_switch(void **save, void *load);
asm(R"(
    .text
    .p2align 4
    .hidden tk_emu_switch
    .globl tk_emu_switch
    .type tk_emu_switch, @function
tk_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size tk_emu_switch, . - tk_emu_switch
)");

Fiber::~Fiber() { munmap(reinterpret_cast<void *>(low_ - page()), kStackBytes + page()); }

void Fiber::prepare(void (*entry)()) {
  // What tk_emu_switch takes from the stack: six registers and where to go. There the stack is as after a call: with
  // a return address below a multiple of 16.
  void **top = reinterpret_cast<void **>(high_);
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber_ = top;
}

void Fiber::resume() { tk_emu_switch(&caller_, fiber_); }
void Fiber::suspend() { tk_emu_switch(&fiber_, caller_); }

#else

Fiber::~Fiber() {
  delete static_cast<ucontext_t *>(fiber_);
  delete static_cast<ucontext_t *>(caller_);
  munmap(reinterpret_cast<void *>(low_ - page()), kStackBytes + page());
}

void Fiber::prepare(void (*entry)()) {
  if (fiber_ == nullptr) fiber_ = new ucontext_t;
  if (caller_ == nullptr) caller_ = new ucontext_t;
  ucontext_t *context = static_cast<ucontext_t *>(fiber_);
  getcontext(context);
  context->uc_stack.ss_sp = reinterpret_cast<void *>(low_);
  context->uc_stack.ss_size = high_ - low_;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}

void Fiber::resume() { swapcontext(static_cast<ucontext_t *>(caller_), static_cast<ucontext_t *>(fiber_)); }
void Fiber::suspend() { swapcontext(static_cast<ucontext_t *>(fiber_), static_cast<ucontext_t *>(caller_)); }

#endif

}  // namespace tk::emu
