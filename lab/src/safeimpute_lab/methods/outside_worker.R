# Completes a table's first column by mice or missForest. Called by outside_worker.py as
# outside_worker.R METHOD SEED GIVEN.csv ANSWER.csv; the last column is the patient.
given <- commandArgs(TRUE)
method <- given[1]
seed <- as.integer(given[2])
table <- read.csv(given[3], header = FALSE, na.strings = c("nan", "NA"))
names(table) <- c("target", paste0("x", seq_len(ncol(table) - 2)), "patient")
visible <- which(!is.na(table$target))
visits <- nrow(table)

# Mean of five imputed tables, mice's defaults. A visible target is answered by a copy of its visit that has none,
# belongs to a patient of its own and teaches the imputation model nothing.
by_mice <- function(two_levels) {
  suppressPackageStartupMessages(library(mice))
  copies <- table[visible, ]
  copies$target <- NA
  copies$patient <- max(table$patient) + seq_along(visible)
  both <- rbind(table, copies)
  predictors <- make.predictorMatrix(both)
  predictors[, "patient"] <- 0
  methods <- make.method(both)
  if (two_levels) {
    predictors["target", "patient"] <- -2
    methods["target"] <- "2l.pan"
  }
  ignore <- seq_len(nrow(both)) > visits
  imputed <- mice(both, method = methods, predictorMatrix = predictors, ignore = ignore, printFlag = FALSE, seed = seed)
  draws <- sapply(seq_len(imputed$m), function(number) complete(imputed, number)$target)
  answer <- rowMeans(draws)
  answer[visible] <- answer[visits + seq_along(visible)]
  answer[seq_len(visits)]
}

# missForest's defaults; a visible target is answered by the trees grown without its visit.
by_missforest <- function() {
  set.seed(seed)
  columns <- table[, setdiff(names(table), "patient")]
  completed <- missForest::missForest(columns)$ximp
  others <- completed[visible, setdiff(names(completed), "target"), drop = FALSE]
  answer <- completed$target
  answer[visible] <- randomForest::randomForest(others, table$target[visible], nodesize = 1)$predicted
  answer
}

answer <- if (method == "r-missforest") by_missforest() else by_mice(method == "r-mice-2l")
write(format(answer, digits = 17), given[4], ncolumns = 1)
