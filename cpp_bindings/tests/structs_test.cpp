// Structs that grow: callers with an older header pass smaller ones, alone and in arrays.
#include "check.hpp"
#include "structs.hpp"

#include <vector>

// A struct whose second version added `later`.
struct grown {
    std::size_t size;
    int value;
    int reserved;
    double later;
};

namespace picme {
template <>
inline constexpr std::size_t FIRST_SIZE<grown> = offsetof(grown, later);
}

static constexpr grown DEFAULTS = {sizeof(grown), 6, 0, 0.5};
static constexpr std::size_t FIRST = offsetof(grown, later);

// A caller that knows the first version only; what lies behind it is not the library's.
struct old_grown {
    std::size_t size;
    int value;
    int reserved;
};
static_assert(sizeof(old_grown) == FIRST);

static grown *as_grown(old_grown *given) { return reinterpret_cast<grown *>(given); }

static bool refused(const std::function<void()> &work) {
    try {
        work();
    } catch (const picme::Failure &failure) {
        return failure.status == PICME_BAD_ARGUMENT;
    }
    return false;
}

TEST(defaults_are_set_as_far_as_the_caller_knows_them) {
    old_grown given[2] = {{0, 1, 1}, {7, 7, 7}};
    picme::initialise(as_grown(given), FIRST, DEFAULTS, "grown");
    CHECK(given[0].size == FIRST && given[0].value == 6 && given[0].reserved == 0);
    CHECK(given[1].size == 7 && given[1].value == 7 && given[1].reserved == 7);
}

TEST(an_older_struct_gets_the_defaults_of_what_it_lacks) {
    old_grown given{FIRST, 9, 0};
    const grown made = picme::completed(as_grown(&given), DEFAULTS, "grown");
    CHECK(made.size == sizeof(grown) && made.value == 9 && made.later == 0.5);
}

TEST(no_more_is_given_back_than_the_caller_knows) {
    old_grown given[2] = {{FIRST, 1, 1}, {7, 7, 7}};
    picme::give_back(as_grown(given), {sizeof(grown), 3, 4, 5.0});
    CHECK(given[0].size == FIRST && given[0].value == 3 && given[0].reserved == 4 && given[1].size == 7 && given[1].value == 7);
}

TEST(arrays_are_stepped_by_the_callers_size) {
    old_grown old[3] = {{FIRST, 0, 0}, {FIRST, 1, 0}, {FIRST, 2, 0}};
    grown now[3] = {{sizeof(grown), 0, 0, 0}, {sizeof(grown), 1, 0, 0}, {sizeof(grown), 2, 0, 0}};
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(picme::element(as_grown(old), i)->value == static_cast<int>(i));
        CHECK(picme::element(now, i) == &now[i]);
    }
}

TEST(sizes_that_no_header_had_are_refused) {
    grown given = DEFAULTS;
    for (const std::size_t size : {std::size_t{0}, FIRST - 1, FIRST + 1, sizeof(grown) + 8}) {
        given.size = size;
        CHECK(refused([&] { picme::completed(&given, DEFAULTS, "grown"); }));
        CHECK(refused([&] { picme::initialise(&given, size, DEFAULTS, "grown"); }));
        if (size >= sizeof given.size) CHECK(given.size == 0); // so a caller that ignores the status is refused later
    }
    CHECK(refused([] { picme::completed<grown>(nullptr, DEFAULTS, "grown"); }));
    CHECK(refused([] { picme::initialise<grown>(nullptr, sizeof(grown), DEFAULTS, "grown"); }));
}

int main() { return check::run(); }
