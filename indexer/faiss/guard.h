#pragma once

// What every function of the C interface promises: no exception leaves it, 0 is
// success, and the text of a failure is kept for the thread that called.

#include <exception>

#include <faiss/impl/FaissException.h>

void keep_error(const char* text);

template <class Do>
int guard(Do&& body) {
    try {
        body();
        return 0;
    } catch (const faiss::FaissException& e) {
        keep_error(e.what());
        return -2;
    } catch (const std::exception& e) {
        keep_error(e.what());
        return -4;
    } catch (...) {
        keep_error("unknown exception");
        return -1;
    }
}
