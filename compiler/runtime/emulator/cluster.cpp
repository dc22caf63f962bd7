// Clusters: blocks that run together and read each other's shared memory.
#include <algorithm>
#include <cstring>

#include "cells.h"
#include "emulator.h"

namespace tk::emu {
namespace {

constexpr uintptr_t kPage = 4096;

uint32_t size_of(const Launch &launch) { return static_cast<uint32_t>(launch.kernel->cluster); }

// What the block has at the address of a copy.
uintptr_t own_address(const Worker &owner, uintptr_t kept) { return kept - owner.kept_low + owner.shared_low; }

std::string ended_text(const Worker &reader, uint32_t thread, uintptr_t address, size_t bytes, const std::string &place) {
  return "ended block: " + thread_text(reader, thread) + " reads " + element_text(reader, address, bytes) +
         ": a block of the cluster may have ended, no cluster barrier keeps it" + place;
}

// A read of another block's memory, of what is known of it there.
void check_cell_of(Worker &from, const Worker &owner, const Cell &cell, uintptr_t address, size_t bytes, const void *place) {
  const auto reads = [&] { return thread_text(from, from.current->number) + " reads " + element_text(from, address, bytes); };
  if (cell.in_flight)
    from.stop("asynchronous copy: " + reads() + " before what is copied there was waited for" + place_text(place));
  if (cell.write.epoch == 0) from.stop("uninitialised: " + reads() + ", which that block has not written" + place_text(place));
  if (cell.write.epoch < owner.cluster_epoch) return;
  from.stop("race: " + reads() + ", which " + thread_text(owner, cell.write.thread) + (cell.write.atomic ? " updated" : " wrote") +
            " with no cluster barrier between" + earlier_text(cell.write.place) + place_text(place));
}

}  // namespace

Cluster::Cluster(Launch &launch) : launch_(launch), members_(size_of(launch)) {
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    Member &one = members_[rank];
    one.block = std::make_unique<Worker>(launch);
    one.block->cluster = this;
    one.block->rank = rank;
    // As far from a page's start as the memory itself: as aligned, and in the same banks.
    one.kept = Mapping(image().thread_bytes + kPage);
    one.block->kept_low = reinterpret_cast<uintptr_t>(one.kept.data()) + one.block->shared_low % kPage;
    one.visit_memory = Mapping(image().thread_bytes * sizeof(Visit));
  }
}

void Cluster::run() {
  while (!launch_.failed.load()) {
    const uint64_t number = launch_.next_unit.fetch_add(1);
    if (number >= launch_.units) break;
    begin(number);
    run_one();
  }
  worker = nullptr;
}

void Cluster::begin(uint64_t number) {
  const tk_emu_uint3 &grid = launch_.grid;
  const uint32_t x = static_cast<uint32_t>(number % grid.x), y = static_cast<uint32_t>(number / grid.x % grid.y);
  const uint32_t z = static_cast<uint32_t>(number / grid.x / grid.y) * size_of(launch_);
  for (Member &one : members_) {
    one.block->begin_block({x, y, z + one.block->rank});
    one.block->cluster_epoch = one.block->epoch;
  }
}

void Cluster::run_one() {
  for (;;) {
    size_t ended = 0;
    for (Member &one : members_) {
      run_member(one);
      if (one.block->ended) check_end(one);
      if (launch_.failed.load()) return;
      ended += one.block->ended;
    }
    if (ended == members_.size()) return;
    if (release()) continue;
    members_[0].block->tell(stuck());
    return;
  }
}

// With its shared arrays in their place, until it has ended or waits for the others.
void Cluster::run_member(Member &member) {
  Worker &block = *member.block;
  const auto each_array = [&](auto copy) {
    for (const SharedArray *array : launch_.arrays)
      copy(reinterpret_cast<void *>(block.shared_low + array->offset), reinterpret_cast<void *>(block.kept_low + array->offset),
           static_cast<size_t>(array->bytes));
  };
  each_array([](void *own, void *kept, size_t bytes) { std::memcpy(own, kept, bytes); });
  worker = &block;
  block.run_block();
  each_array([](void *own, void *kept, size_t bytes) { std::memcpy(kept, own, bytes); });
}

bool Cluster::release() {
  const int line = members_[0].block->threads[0].line;
  for (const Member &one : members_)
    if (one.block->ended || one.block->threads[0].line != line) return false;
  for (Member &one : members_) {
    one.block->release(State::kCluster);
    one.block->cluster_epoch = one.block->epoch;
  }
  return true;
}

// Why the blocks cannot go on.
std::string Cluster::stuck() const {
  const auto find = [this](auto holds) {
    return std::find_if(members_.begin(), members_.end(), [&](const Member &one) { return holds(*one.block); })->block.get();
  };
  const Worker &waiting = *find([](const Worker &block) { return !block.ended; });
  const int line = waiting.threads[0].line;
  const Worker &other = *find([=](const Worker &block) { return block.ended || block.threads[0].line != line; });
  return "divergent barrier: " + thread_text(waiting, 0) + " waits" + line_text(line) + "; " + block_text(other) +
         (other.ended ? " has ended" : " waits elsewhere" + line_text(other.threads[0].line));
}

// A block that ends while others may read its memory: those that came to it earlier in this round.
void Cluster::check_end(const Member &member) {
  Worker &block = *member.block;
  if (member.last.epoch < block.cluster_epoch) return;
  block.tell(ended_text(*members_[member.last.rank].block, member.last.thread, member.last_address, member.last_bytes,
                        earlier_text(member.last.place)));
}

void *Cluster::in_block(Worker &from, void *own, int rank, const void *place) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(own);
  if (rank < 0 || static_cast<size_t>(rank) >= members_.size()) {
    const Busy busy(from);
    from.stop("cluster: " + thread_text(from, from.current->number) +
              text(" asks for block %d of a cluster of %zu", rank, members_.size()) + place_text(place));
  }
  if (address < from.shared_low || address >= from.shared_high) {
    const Busy busy(from);
    from.stop("cluster: " + thread_text(from, from.current->number) +
              " asks for what another block has in place of " + element_text(from, address, 0) +
              ", which is no shared memory of its own" + place_text(place));
  }
  const Worker &owner = *members_[static_cast<size_t>(rank)].block;
  return &owner == &from ? own : reinterpret_cast<void *>(address - from.shared_low + owner.kept_low);
}

const Worker *Cluster::owner_of(const Worker &from, uintptr_t address) const {
  for (const Member &one : members_)
    if (one.block->rank != from.rank && address - one.block->kept_low < image().thread_bytes) return one.block.get();
  return nullptr;
}

bool Cluster::try_other(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place) {
  const Worker *found = owner_of(from, address);
  if (found == nullptr) return false;
  Member &member = members_[found->rank];
  Worker &owner = *member.block;
  const uintptr_t own = own_address(owner, address);
  if (!in_array(owner, own, bytes)) return false;
  if (use != Use::kRead)
    from.stop("cluster: " + thread_text(from, from.current->number) + " " + verb(use) + " " + element_text(from, address, bytes) +
              "; the emulator knows reads of other blocks' memory alone" + place_text(place));
  if (owner.ended) from.stop(ended_text(from, from.current->number, address, bytes, place_text(place)));
  each_cell(owner, own, bytes, [&](Cell &cell, uintptr_t at) {
    check_cell_of(from, owner, cell, at - owner.shared_low + owner.kept_low, std::min<size_t>(bytes, 4), place);
  });
  member.last = {owner.epoch, offset_of(from, place), static_cast<uint16_t>(from.current->number), static_cast<uint8_t>(from.rank)};
  member.last_address = address;
  member.last_bytes = bytes;
  std::fill_n(member.visits() + (own - owner.shared_low), bytes, member.last);
  return true;
}

void Cluster::check_visits(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place) {
  const Member &own = members_[from.rank];
  if (own.last.epoch < from.cluster_epoch) return;
  for (uintptr_t at = address; at < address + bytes; ++at) {
    const Visit &visit = own.visits()[at - from.shared_low];
    if (visit.epoch < from.cluster_epoch) continue;
    from.stop("race: " + thread_text(from, from.current->number) + " " + verb(use) + " " + element_text(from, address, bytes) +
              ", which " + thread_text(*members_[visit.rank].block, visit.thread) + " read with no cluster barrier between" +
              earlier_text(visit.place) + place_text(place));
  }
}

}  // namespace tk::emu
