//go:build faiss && cgo

// The functions of FAISS's C interface that go-faiss calls, over the C++ library.
// Distributions ship the headers of that interface but no libfaiss_c.

#include <memory>
#include <string>

#include <faiss/AutoTune.h>
#include <faiss/IndexFlat.h>
#include <faiss/impl/AuxIndexStructures.h>
#include <faiss/impl/FaissException.h>
#include <faiss/impl/IDSelector.h>
#include <faiss/index_factory.h>
#include <faiss/index_io.h>

extern "C" {
#include <faiss/c_api/AutoTune_c.h>
#include <faiss/c_api/IndexFlat_c.h>
#include <faiss/c_api/Index_c.h>
#include <faiss/c_api/error_c.h>
#include <faiss/c_api/impl/AuxIndexStructures_c.h>
#include <faiss/c_api/index_factory_c.h>
#include <faiss/c_api/index_io_c.h>
}

#include "guard.h"

namespace {

thread_local std::string last_error;

faiss::Index* in(FaissIndex* x) { return reinterpret_cast<faiss::Index*>(x); }
const faiss::Index* in(const FaissIndex* x) { return reinterpret_cast<const faiss::Index*>(x); }
FaissIndex* out(faiss::Index* x) { return reinterpret_cast<FaissIndex*>(x); }

faiss::RangeSearchResult* in(FaissRangeSearchResult* x) { return reinterpret_cast<faiss::RangeSearchResult*>(x); }
const faiss::ParameterSpace* in(const FaissParameterSpace* x) { return reinterpret_cast<const faiss::ParameterSpace*>(x); }

// A selector travels as its base class, whatever it is.
template <class Made, class Handle>
void give(Handle** to, Made* made) {
    *to = reinterpret_cast<Handle*>(static_cast<faiss::IDSelector*>(made));
}

} // namespace

void keep_error(const char* text) { last_error = text; }

extern "C" {

const char* faiss_get_last_error() { return last_error.c_str(); }

int faiss_Index_d(const FaissIndex* x) { return in(x)->d; }
int faiss_Index_is_trained(const FaissIndex* x) { return in(x)->is_trained; }
idx_t faiss_Index_ntotal(const FaissIndex* x) { return in(x)->ntotal; }
FaissMetricType faiss_Index_metric_type(const FaissIndex* x) { return static_cast<FaissMetricType>(in(x)->metric_type); }
void faiss_Index_free(FaissIndex* x) { delete in(x); }

int faiss_Index_train(FaissIndex* x, idx_t n, const float* v) {
    return guard([&] { in(x)->train(n, v); });
}
int faiss_Index_add(FaissIndex* x, idx_t n, const float* v) {
    return guard([&] { in(x)->add(n, v); });
}
int faiss_Index_add_with_ids(FaissIndex* x, idx_t n, const float* v, const idx_t* ids) {
    return guard([&] { in(x)->add_with_ids(n, v, ids); });
}
int faiss_Index_search(const FaissIndex* x, idx_t n, const float* v, idx_t k, float* scores, idx_t* ids) {
    return guard([&] { in(x)->search(n, v, k, scores, ids); });
}
int faiss_Index_range_search(const FaissIndex* x, idx_t n, const float* v, float radius, FaissRangeSearchResult* to) {
    return guard([&] { in(x)->range_search(n, v, radius, in(to)); });
}
int faiss_Index_reset(FaissIndex* x) {
    return guard([&] { in(x)->reset(); });
}
int faiss_Index_remove_ids(FaissIndex* x, const FaissIDSelector* which, size_t* removed) {
    return guard([&] { *removed = in(x)->remove_ids(*reinterpret_cast<const faiss::IDSelector*>(which)); });
}

int faiss_RangeSearchResult_new(FaissRangeSearchResult** to, idx_t n) {
    return guard([&] { *to = reinterpret_cast<FaissRangeSearchResult*>(new faiss::RangeSearchResult(n)); });
}
void faiss_RangeSearchResult_free(FaissRangeSearchResult* r) { delete in(r); }
size_t faiss_RangeSearchResult_nq(const FaissRangeSearchResult* r) {
    return reinterpret_cast<const faiss::RangeSearchResult*>(r)->nq;
}
void faiss_RangeSearchResult_lims(FaissRangeSearchResult* r, size_t** to) { *to = in(r)->lims; }
void faiss_RangeSearchResult_labels(FaissRangeSearchResult* r, idx_t** ids, float** scores) {
    *ids = in(r)->labels;
    *scores = in(r)->distances;
}

int faiss_IDSelectorRange_new(FaissIDSelectorRange** to, idx_t lo, idx_t hi) {
    return guard([&] { give(to, new faiss::IDSelectorRange(lo, hi)); });
}
int faiss_IDSelectorBatch_new(FaissIDSelectorBatch** to, size_t n, const idx_t* ids) {
    return guard([&] { give(to, new faiss::IDSelectorBatch(n, ids)); });
}
void faiss_IDSelector_free(FaissIDSelector* s) { delete reinterpret_cast<faiss::IDSelector*>(s); }

int faiss_index_factory(FaissIndex** to, int d, const char* description, FaissMetricType metric) {
    return guard([&] { *to = out(faiss::index_factory(d, description, static_cast<faiss::MetricType>(metric))); });
}

int faiss_IndexFlat_new_with(FaissIndexFlat** to, idx_t d, FaissMetricType metric) {
    return guard([&] { *to = out(new faiss::IndexFlat(d, static_cast<faiss::MetricType>(metric))); });
}
FaissIndexFlat* faiss_IndexFlat_cast(FaissIndex* x) { return out(dynamic_cast<faiss::IndexFlat*>(in(x))); }
void faiss_IndexFlat_xb(FaissIndexFlat* x, float** to, size_t* size) {
    auto* flat = static_cast<faiss::IndexFlat*>(in(x));
    *to = flat->get_xb();
    *size = flat->codes.size() / sizeof(float);
}

int faiss_write_index_fname(const FaissIndex* x, const char* path) {
    return guard([&] { faiss::write_index(in(x), path); });
}
int faiss_read_index_fname(const char* path, int flags, FaissIndex** to) {
    return guard([&] { *to = out(faiss::read_index(path, flags)); });
}

int faiss_ParameterSpace_new(FaissParameterSpace** to) {
    return guard([&] { *to = reinterpret_cast<FaissParameterSpace*>(new faiss::ParameterSpace()); });
}
void faiss_ParameterSpace_free(FaissParameterSpace* p) { delete reinterpret_cast<faiss::ParameterSpace*>(p); }
int faiss_ParameterSpace_set_index_parameter(const FaissParameterSpace* p, FaissIndex* x, const char* name, double value) {
    return guard([&] { in(p)->set_index_parameter(in(x), name, value); });
}

} // extern "C"
