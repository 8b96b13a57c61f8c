"""Figures the paper published, as a reference column beside ours; never mixed with ours.

He et al., SafeImpute: Reliable Clinical Data Imputation via Conformal Selection, KDD 2026,
doi:10.1145/3770855.3817967. Target HbA1c (%), on cohorts that are not public in the form used there.
"""

from safeimpute_lab.benchmark.result import CohortFigures, Published

SOURCE = "He et al., KDD 2026, doi:10.1145/3770855.3817967, Tables 1 to 6: HbA1c in %, other data than here"
COHORTS = ("Mayo Clinic", "MIMIC-III", "MIMIC-IV")

Figures = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]  # one entry per cohort

# Table 2, imputation alone: MAE, RMSE
ALONE: dict[str, Figures] = {
    "mean": ((0.6612, 0.8198), (1.3455, 1.8495), (1.3016, 1.7386)),
    "knn": ((0.7479, 0.9239), (1.3785, 1.9068), (1.1507, 1.6223)),
    "mice": ((0.6369, 0.8045), (1.1787, 1.6490), (1.1056, 1.5231)),
    "missforest": ((0.6300, 0.8010), (1.1523, 1.6148), (1.1233, 1.5490)),
    "hyperimpute": ((0.6640, 0.8263), (1.1664, 1.6396), (1.1441, 1.5725)),
    "gain": ((0.7200, 0.8564), (1.4251, 1.8650), (1.2270, 1.7497)),
    "grape": ((0.5655, 0.7743), (1.2072, 1.8092), (1.1509, 1.8945)),
    "tdm": ((0.6213, 0.7946), (1.1816, 1.7180), (1.2578, 1.7052)),
    "remasker": ((0.6654, 0.8329), (1.2120, 1.7055), (1.3179, 1.6859)),
    "diffputer": ((0.6227, 0.7988), (1.1411, 1.7129), (1.0467, 1.4541)),
    "lstm": ((0.9289, 1.1666), (1.3377, 1.8428), (1.1449, 1.7672)),
    "transformer": ((0.5991, 0.7696), (1.5403, 1.8801), (1.4214, 2.2184)),
    "paper": ((0.4142, 0.5253), (1.0621, 1.6002), (0.9642, 1.5181)),
}

# Table 1, on the values the paper's own risk released: MAE, RMSE, precision
UNDER_SELECTION: dict[str, Figures] = {
    "mean": ((0.4311, 0.5086, 0.8333), (1.2528, 1.4844, 0.3970), (1.1601, 1.4991, 0.5044)),
    "knn": ((0.4983, 0.5776, 0.5000), (1.2758, 1.5844, 0.4879), (1.2962, 1.6638, 0.4557)),
    "mice": ((0.3889, 0.4589, 0.8333), (1.0382, 1.2747, 0.5394), (0.9960, 1.3906, 0.6346)),
    "missforest": ((0.3419, 0.4416, 0.8333), (1.1409, 1.3614, 0.4697), (0.9864, 1.3351, 0.6185)),
    "hyperimpute": ((0.3833, 0.4819, 0.8333), (0.9844, 1.2409, 0.5758), (0.9872, 1.3693, 0.6185)),
    "gain": ((0.3635, 0.4360, 0.8333), (1.0613, 1.3510, 0.5394), (1.0148, 1.4378, 0.6275)),
    "grape": ((0.2494, 0.3688, 0.8333), (0.9724, 1.2526, 0.6333), (1.0057, 1.6450, 0.6487)),
    "tdm": ((0.4191, 0.4832, 0.6667), (0.9934, 1.2543, 0.6091), (1.1313, 1.4749, 0.5143)),
    "miwae": ((0.5040, 0.6054, 0.6667), (1.1782, 1.5031, 0.5182), (1.0124, 1.4118, 0.6232)),
    "remasker": ((0.5250, 0.6475, 0.8333), (1.1112, 1.3463, 0.5061), (1.2324, 1.5260, 0.4431)),
    "diffputer": ((0.3060, 0.4026, 1.0000), (1.0771, 1.3122, 0.5212), (0.9791, 1.2305, 0.6400)),
    "lstm": ((0.6620, 0.7771, 0.8333), (1.1633, 1.4025, 0.4455), (0.9934, 1.4242, 0.6293)),
    "transformer": ((0.2649, 0.3129, 1.0000), (2.1025, 2.4062, 0.1939), (1.1627, 1.9186, 0.6052)),
    "paper": ((0.2464, 0.3125, 1.0000), (0.9662, 1.2351, 0.6333), (0.9715, 1.3820, 0.6555)),
}

# Ablation of the imputer without selection: MAE, RMSE on Mayo Clinic and MIMIC-III
ABLATED_IMPUTER: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "no temporal edges": ((0.9669, 1.2231), (1.2889, 1.8091)),
    "no value edges": ((0.4213, 0.5141), (1.0902, 1.7683)),
    "no gate": ((0.9773, 1.2373), (1.1192, 1.7312)),
    "no reconstruction": ((0.4434, 0.5485), (1.0355, 1.5724)),
    "paper's system": ((0.4142, 0.5253), (1.0621, 1.6002)),
}
# Ablation of the risk under selection: MAE, RMSE, FDR on Mayo Clinic and MIMIC-III
ABLATED_RISK: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "instability alone": ((0.3150, 0.3675, 0.3575), (1.1468, 1.6246, 0.6304)),
    "proxy risk": ((0.2464, 0.3125, 0.0000), (0.9662, 1.2351, 0.3667)),
}
# Release at the chosen level: FDR, power, acceptance, precision
RELEASE_SUMMARY: dict[str, tuple[float, float, float, float]] = {
    "Mayo Clinic": (0.000, 0.1818, 0.1132, 1.000),
    "MIMIC-III": (0.3667, 0.0982, 0.0883, 0.6333),
    "MIMIC-IV": (0.3437, 0.2163, 0.1822, 0.6563),
}
# Patients, mean number of visits
COHORT_SIZES = {"Mayo Clinic": (84, 7.40), "MIMIC-III": (4243, 2.20), "MIMIC-IV": (28880, 4.95)}


def published_figures() -> Published:
    """The paper's two tables with their source, by method and cohort."""
    return {
        "source": SOURCE,
        "imputation": _by_cohort(ALONE, ("mae", "rmse")),
        "under_selection": _by_cohort(UNDER_SELECTION, ("mae", "rmse", "precision")),
    }


def _by_cohort(table: dict[str, Figures], names: tuple[str, ...]) -> dict[str, CohortFigures]:
    return {
        method: {cohort: dict(zip(names, row, strict=True)) for cohort, row in zip(COHORTS, rows, strict=True)}
        for method, rows in table.items()
    }
