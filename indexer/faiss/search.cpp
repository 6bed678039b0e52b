//go:build faiss && cgo

#include "search.h"

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <vector>

#include <omp.h>

#include <faiss/IndexFlat.h>
#include <faiss/IndexFlatCodes.h>
#include <faiss/IndexHNSW.h>
#include <faiss/IndexIDMap.h>
#include <faiss/IndexIVF.h>
#include <faiss/IndexIVFFastScan.h>
#include <faiss/IndexPreTransform.h>
#include <faiss/IndexRefine.h>
#include <faiss/IndexScalarQuantizer.h>
#include <faiss/impl/AuxIndexStructures.h>
#include <faiss/impl/FaissAssert.h>
#include <faiss/impl/IDSelector.h>
#include <faiss/invlists/OnDiskInvertedLists.h>
#include <faiss/utils/distances.h>

#include "guard.h"

extern "C" void openblas_set_num_threads(int);

using faiss::Index;
using faiss::IndexHNSW;
using faiss::IndexIDMap;
using faiss::IndexIVF;
using faiss::IndexIVFFastScan;
using faiss::IndexPreTransform;
using faiss::IndexRefine;

namespace {

const Index* in(const void* x) { return static_cast<const Index*>(x); }

// Mapped selects positions of an id map by the ids there.
struct Mapped : faiss::IDSelector {
    const std::vector<int64_t>& ids;
    const faiss::IDSelector& of;
    Mapped(const std::vector<int64_t>& ids, const faiss::IDSelector& of) : ids(ids), of(of) {}
    bool is_member(int64_t i) const override { return of.is_member(ids[i]); }
};

// plain_ivf is x when it takes settings for one search.
const IndexIVF* plain_ivf(const Index* x) {
    return dynamic_cast<const IndexIVFFastScan*>(x) ? nullptr : dynamic_cast<const IndexIVF*>(x);
}

struct Search {
    int64_t nprobe;
    faiss::IDSelector* only; // nullptr: all

    void run(const Index* x, int64_t n, const float* v, int64_t k, float* scores, int64_t* ids) const;
    void refine(const IndexRefine* x, int64_t n, const float* v, int64_t k, float* scores, int64_t* ids) const;
};

// run searches as x->search does, but hands the settings of this call on to
// where they mean something: the library's own classes refuse them on the way.
void Search::run(const Index* x, int64_t n, const float* v, int64_t k, float* scores, int64_t* ids) const {
    if (auto* map = dynamic_cast<const IndexIDMap*>(x)) {
        Search inner = *this;
        std::unique_ptr<Mapped> mapped;
        if (only) {
            mapped = std::make_unique<Mapped>(map->id_map, *only);
            inner.only = mapped.get();
        }
        inner.run(map->index, n, v, k, scores, ids);
        for (int64_t i = 0; i < n * k; i++)
            ids[i] = ids[i] < 0 ? ids[i] : map->id_map[ids[i]];
    } else if (auto* pre = dynamic_cast<const IndexPreTransform*>(x)) {
        const float* moved = pre->apply_chain(n, v);
        std::unique_ptr<const float[]> owned(moved == v ? nullptr : moved);
        run(pre->index, n, moved, k, scores, ids);
    } else if (auto* ref = dynamic_cast<const IndexRefine*>(x)) {
        refine(ref, n, v, k, scores, ids);
    } else if (auto* ivf = plain_ivf(x)) {
        faiss::SearchParametersIVF p;
        p.nprobe = nprobe > 0 ? nprobe : ivf->nprobe;
        p.max_codes = ivf->max_codes;
        p.sel = only;
        ivf->search(n, v, k, scores, ids, &p);
    } else if (only) {
        faiss::SearchParameters p;
        p.sel = only;
        x->search(n, v, k, scores, ids, &p);
    } else {
        x->search(n, v, k, scores, ids);
    }
}

// refine takes k_factor times as many from the coarser index and orders them by
// the finer one's scores.
void Search::refine(const IndexRefine* x, int64_t n, const float* v, int64_t k, float* scores, int64_t* ids) const {
    int64_t wide = std::min(std::max(static_cast<int64_t>(k * x->k_factor), k), static_cast<int64_t>(x->ntotal));
    std::vector<float> rough(n * wide);
    std::vector<int64_t> found(n * wide);
    run(x->base_index, n, v, wide, rough.data(), found.data());
    std::unique_ptr<faiss::DistanceComputer> exact(x->refine_index->get_distance_computer());
    // Distance computers of inner products answer products; larger is better.
    bool larger = x->metric_type == faiss::METRIC_INNER_PRODUCT;
    std::vector<std::pair<float, int64_t>> best;
    for (int64_t q = 0; q < n; q++) {
        exact->set_query(v + q * x->d);
        best.clear();
        for (int64_t i = q * wide; i < (q + 1) * wide; i++)
            if (found[i] >= 0)
                best.emplace_back((*exact)(found[i]), found[i]);
        std::sort(best.begin(), best.end(), [&](auto& a, auto& b) {
            if (a.first != b.first)
                return larger ? a.first > b.first : a.first < b.first;
            return a.second < b.second;
        });
        for (int64_t i = 0; i < k; i++) {
            bool there = i < static_cast<int64_t>(best.size());
            scores[q * k + i] = there ? best[i].first : 0;
            ids[q * k + i] = there ? best[i].second : -1;
        }
    }
}

// core is what is under id maps, transforms and refinements.
const Index* core(const Index* x, int* traits) {
    for (;;) {
        if (auto* map = dynamic_cast<const IndexIDMap*>(x)) {
            *traits |= HAS_ID_MAP;
            x = map->index;
        } else if (auto* pre = dynamic_cast<const IndexPreTransform*>(x)) {
            x = pre->index;
        } else if (auto* ref = dynamic_cast<const IndexRefine*>(x)) {
            x = ref->base_index;
        } else {
            return x;
        }
    }
}

// merge is merge_from with the ids that each kind needs.
void merge(Index* to, Index* from) {
    FAISS_THROW_IF_NOT_MSG(typeid(*to) == typeid(*from), "the indices are of different kinds");
    // Here FAISS 1.7.3 throws where nothing can catch it, and the program dies.
    FAISS_THROW_IF_NOT_MSG(!dynamic_cast<IndexIVFFastScan*>(to), "fast-scan indices cannot be joined");
    auto* map = dynamic_cast<IndexIDMap*>(to);
    if (!map) {
        // Rows of an IVF index count on from those that are there; flat ones always do.
        int traits = 0;
        bool counts = dynamic_cast<const IndexIVF*>(core(to, &traits));
        to->merge_from(*from, counts ? to->ntotal : 0);
        return;
    }
    // IndexIDMap::merge_from lets the rows of an IVF index inside begin at 0 again.
    auto* more = static_cast<IndexIDMap*>(from);
    merge(map->index, more->index);
    map->id_map.insert(map->id_map.end(), more->id_map.begin(), more->id_map.end());
    map->ntotal = map->index->ntotal;
    more->reset();
    if (auto* both = dynamic_cast<faiss::IndexIDMap2*>(to))
        both->construct_rev_map();
}

} // namespace

extern "C" {

int index_traits(const void* index, int* traits) {
    return guard([&] {
        *traits = 0;
        const Index* x = core(in(index), traits);
        if (dynamic_cast<const IndexIVF*>(x))
            *traits |= HAS_NPROBE;
        if (dynamic_cast<const IndexHNSW*>(x))
            *traits |= HAS_EF_SEARCH;
        if (plain_ivf(x) || dynamic_cast<const faiss::IndexFlat*>(x) || dynamic_cast<const faiss::IndexScalarQuantizer*>(x))
            *traits |= HAS_RANGES;
    });
}

int index_effort(void* index, int64_t* value) {
    return guard([&] {
        int traits;
        Index* x = const_cast<Index*>(core(in(index), &traits));
        auto* hnsw = dynamic_cast<IndexHNSW*>(x);
        auto* scan = dynamic_cast<IndexIVFFastScan*>(x);
        if (*value && hnsw)
            hnsw->hnsw.efSearch = *value;
        if (*value && scan)
            scan->nprobe = *value;
        *value = hnsw ? hnsw->hnsw.efSearch : scan ? scan->nprobe : 0;
    });
}

int index_search(const void* index, int64_t n, const float* x, int64_t k, const search_settings* s, float* scores, int64_t* ids) {
    return guard([&] {
        faiss::IDSelectorRange range(s->from, s->to);
        Search search{s->nprobe, s->to < 0 ? nullptr : &range};
        std::vector<int64_t> found(n * k);
        search.run(in(index), n, x, k, scores, found.data());
        std::copy(found.begin(), found.end(), ids);
    });
}

int index_ids(const void* index, int64_t first, int* state, int64_t* id) {
    return guard([&] {
        const Index* x = in(index);
        std::vector<bool> seen(x->ntotal);
        *state = 0;
        auto check = [&](const int64_t* ids, size_t n) {
            for (size_t i = 0; i < n && *state == 0; i++) {
                int64_t at = ids[i] - first;
                if (at < 0 || at >= x->ntotal)
                    *state = 2;
                else if (seen[at])
                    *state = 1;
                else
                    seen[at] = true;
                *id = ids[i];
            }
        };
        if (auto* map = dynamic_cast<const IndexIDMap*>(x)) {
            check(map->id_map.data(), map->id_map.size());
            return;
        }
        int traits;
        if (auto* ivf = dynamic_cast<const IndexIVF*>(core(x, &traits))) {
            for (size_t l = 0; l < ivf->nlist; l++) {
                faiss::InvertedLists::ScopedIds ids(ivf->invlists, l);
                check(ids.get(), ivf->invlists->list_size(l));
            }
        }
    });
}

int index_mapped(void* index) {
    return guard([&] {
        int traits;
        auto* ivf = dynamic_cast<const IndexIVF*>(core(in(index), &traits));
        if (auto* lists = ivf ? dynamic_cast<faiss::OnDiskInvertedLists*>(ivf->invlists) : nullptr)
            lists->prefetch_nthread = 0;
    });
}

int index_reserve(void* index, int64_t n) {
    return guard([&] {
        int traits;
        auto* codes = dynamic_cast<const faiss::IndexFlatCodes*>(core(in(index), &traits));
        if (codes)
            const_cast<faiss::IndexFlatCodes*>(codes)->codes.reserve(n * codes->code_size);
    });
}

int index_merge(void* index, void* other) {
    return guard([&] { merge(static_cast<Index*>(index), static_cast<Index*>(other)); });
}

void set_threads(int n) { omp_set_num_threads(n); }

void one_blas_thread(void) {
    openblas_set_num_threads(1);
    faiss::distance_compute_blas_threshold = 1;
}

} // extern "C"
