// Recursive descent over the bytes; the text is checked to be UTF-8 first, so strings can be copied as they are.
#include "json.hpp"

#include <charconv>
#include <limits>
#include <stdexcept>

namespace picme::json {
namespace {

constexpr int MAX_DEPTH = 32;

[[noreturn]] void refuse(const char *why) { throw std::invalid_argument(why); }

void check_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const auto lead = static_cast<unsigned char>(text[at]);
        const int more = lead < 0x80 ? 0 : lead < 0xC2 ? -1 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF5 ? 3 : -1;
        if (more < 0 || at + static_cast<std::size_t>(more) >= text.size()) refuse("not UTF-8");
        std::uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
        for (int i = 0; i < more; ++i) {
            const auto byte = static_cast<unsigned char>(text[++at]);
            if ((byte & 0xC0) != 0x80) refuse("not UTF-8");
            code = code << 6 | (byte & 0x3Fu);
        }
        const bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
        if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse("not UTF-8");
        ++at;
    }
}

void append_utf8(std::string &out, std::uint32_t code) {
    if (code < 0x80) {
        out += static_cast<char>(code);
        return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    const unsigned lead = more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0;
    out += static_cast<char>(lead | code >> 6 * more);
    for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80u | (code >> 6 * i & 0x3Fu));
}

class Parser {
public:
    explicit Parser(std::string_view text) : text(text) {}

    Value document() {
        Value root = value(0);
        skip();
        if (at != text.size()) refuse("text after the end");
        return root;
    }

private:
    std::string_view text;
    std::size_t at = 0;

    char peek() const { return at < text.size() ? text[at] : '\0'; }

    void skip() {
        while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) ++at;
    }

    bool take(char wanted) {
        if (at >= text.size() || text[at] != wanted) return false;
        ++at;
        return true;
    }

    Value value(int depth) {
        if (depth > MAX_DEPTH) refuse("nested too deep");
        skip();
        Value parsed;
        switch (peek()) {
        case '{': object(parsed, depth); break;
        case '[': list(parsed, depth); break;
        case '"':
            parsed.kind = Value::Text;
            parsed.text = string();
            break;
        case 't':
        case 'f':
            parsed.kind = Value::Boolean;
            parsed.boolean = peek() == 't';
            word(parsed.boolean ? "true" : "false");
            break;
        case 'n': word("null"); break;
        default: number(parsed);
        }
        return parsed;
    }

    void word(std::string_view wanted) {
        if (text.substr(at, wanted.size()) != wanted) refuse("an unknown word");
        at += wanted.size();
    }

    void object(Value &out, int depth) {
        out.kind = Value::Object;
        ++at;
        skip();
        if (take('}')) return;
        do {
            skip();
            if (peek() != '"') refuse("a key that is no text");
            std::string key = string();
            skip();
            if (!take(':')) refuse("a key without a value");
            if (!out.object.emplace(std::move(key), value(depth + 1)).second) refuse("a key twice");
            skip();
        } while (take(','));
        if (!take('}')) refuse("an object without its end");
    }

    void list(Value &out, int depth) {
        out.kind = Value::List;
        ++at;
        skip();
        if (take(']')) return;
        do {
            out.list.push_back(value(depth + 1));
            skip();
        } while (take(','));
        if (!take(']')) refuse("a list without its end");
    }

    std::uint32_t hex4() {
        std::uint32_t code = 0;
        const auto part = text.substr(at, 4);
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), code, 16);
        if (part.size() != 4 || error != std::errc{} || end != part.data() + 4) refuse("a bad \\u escape");
        at += 4;
        return code;
    }

    std::string string() {
        std::string out;
        ++at;
        while (true) {
            if (at >= text.size()) refuse("a text without its end");
            const char c = text[at++];
            if (c == '"') return out;
            if (static_cast<unsigned char>(c) < 0x20) refuse("a control character");
            if (c != '\\') {
                out += c;
                continue;
            }
            constexpr std::string_view ESCAPES = "\"\\/bfnrt", MEANINGS = "\"\\/\b\f\n\r\t";
            const char escape = at < text.size() ? text[at++] : '\0';
            if (escape == 'u') {
                std::uint32_t code = hex4();
                if (code >= 0xD800 && code < 0xDC00 && text.substr(at, 2) == "\\u") {
                    at += 2;
                    const std::uint32_t low = hex4();
                    if (low < 0xDC00 || low >= 0xE000) refuse("half a character");
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                }
                if (code >= 0xD800 && code < 0xE000) refuse("half a character");
                append_utf8(out, code);
            } else {
                const std::size_t which = ESCAPES.find(escape);
                if (escape == '\0' || which == ESCAPES.npos) refuse("an unknown escape");
                out += MEANINGS[which];
            }
        }
    }

    void digits() {
        if (peek() < '0' || peek() > '9') refuse("not a value");
        while (peek() >= '0' && peek() <= '9') ++at;
    }

    void number(Value &out) {
        const std::size_t start = at;
        out.kind = Value::Integer;
        take('-');
        if (!take('0')) digits();
        if (take('.')) {
            out.kind = Value::Number;
            digits();
        }
        if (take('e') || take('E')) {
            out.kind = Value::Number;
            if (!take('+')) take('-');
            digits();
        }
        const char *first = text.data() + start, *last = text.data() + at;
        if (std::from_chars(first, last, out.number).ec != std::errc{}) refuse("a number too large or too small");
        if (out.kind == Value::Integer && std::from_chars(first, last, out.integer).ec != std::errc{})
            out.integer = out.number < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
    }
};

} // namespace

Value parse(std::string_view text) {
    check_utf8(text);
    return Parser(text).document();
}

} // namespace picme::json
