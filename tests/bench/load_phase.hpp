#pragma once

namespace kvasir::bench {

/// Where a run is; moved on by the main thread, read by the workers.
enum class load_phase { preload, warm_up, measured, done };

} // namespace kvasir::bench
