// The structs of picme.h may grow at their end. Callers that were compiled with an older header pass smaller ones, so the library never
// reads or writes more than the size that the caller gives.
#pragma once

#include "failure.hpp"

#include <cstddef>
#include <cstring>
#include <string>

namespace picme {

// The size that a struct had in the first header that had it.
template <typename Struct>
constexpr std::size_t FIRST_SIZE = sizeof(Struct);
template <>
inline constexpr std::size_t FIRST_SIZE<picme_completer_info> = offsetof(picme_completer_info, knows);

template <typename Struct>
void check_struct_size(std::size_t size, const char *name) {
    // A multiple of the alignment, so that elements of an array are aligned.
    if (size >= FIRST_SIZE<Struct> && size <= sizeof(Struct) && size % alignof(Struct) == 0) return;
    const std::string least = std::to_string(FIRST_SIZE<Struct>), most = std::to_string(sizeof(Struct));
    throw bad_argument(std::string(name) + " of " + std::to_string(size) + " bytes", least == most ? most : least + " to " + most,
                       std::string("initialise it with ") + name + "_init(), with a header that is not newer than the library");
}

template <typename Struct>
void check_struct(const Struct *given, const char *name) {
    if (!given) throw bad_argument(std::string(name) + " is NULL", "a pointer", "pass one");
    check_struct_size<Struct>(given->size, name);
}

// Sets the fields that a caller of this size knows to their defaults. A size that is refused leaves a struct that is refused, too.
template <typename Struct>
void initialise(Struct *given, std::size_t size, const Struct &defaults, const char *name) {
    if (!given) throw bad_argument(std::string(name) + " is NULL", "a pointer", "pass one");
    if (size >= sizeof given->size) given->size = 0;
    check_struct_size<Struct>(size, name);
    std::memcpy(given, &defaults, size);
    given->size = size;
}

// What a caller gave, with the defaults of the fields that it does not know.
template <typename Struct>
Struct completed(const Struct *given, const Struct &defaults, const char *name) {
    check_struct(given, name);
    Struct full = defaults;
    std::memcpy(&full, given, given->size);
    full.size = sizeof(Struct);
    return full;
}

// Gives back as much as the caller knows.
template <typename Struct>
void give_back(Struct *given, Struct full) {
    full.size = given->size;
    std::memcpy(given, &full, full.size);
}

// Element i of an array whose elements have the size that the caller knows.
template <typename Struct>
Struct *element(Struct *array, std::size_t i) {
    return reinterpret_cast<Struct *>(reinterpret_cast<char *>(array) + i * array->size);
}

} // namespace picme
